"""Bring the translations in ``locales/`` up to date with the code: ``python tools/update_locales.py [LANGUAGE ...]``.

English stands in the code: in the schemas of the nodes, in ``web/js/`` for settings, in ``web/paceline.js`` for
commands; the words of our widgets stand in ``locales/en/main.json``. A language has the same keys in
``locales/<language>/``, where the frontend looks for them:

    nodeDefs.json    <NodeId>: display_name, description, inputs.<name>.name, outputs.<index>.name
    settings.json    <id, dots as _>: name, tooltip
    commands.json    <id, dots as _>: label
    main.json        settingsCategories, menuLabels: the frontend's own; paceline: read by web/js/frontend/language.js;
                     pacelineReports: sentences of the server by their English template, read by headlines.js

A translation of a template has its placeholders. Where the English has ``{count|step|steps}``, it has one word for each
plural of the language (in the order zero, one, two, few, many, other; the last stands for the rest), or none at all.

Help pages are translated by hand, whole: ``web/docs/<NodeId>/<language>.md``. The frontend does not fall back to the
English page where there is none in its language, so a new node gets the English page until it is translated.
``tools/help_pages.py`` says which pages have fallen behind.

Tooltips stay English, which the frontend shows where it finds no translation: they name options and carry measured
numbers, and a translation that was right last month misleads.

This adds what is missing, in English, removes what is gone, keeps what is translated, and says what is left to do.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from comfy_host.in_process import bootstrap  # noqa: E402
from comfy_host.pack import load_nodes, load_pack  # noqa: E402
from comfy_host.paths import ROOT  # noqa: E402
from help_pages import DOCS  # noqa: E402
from phrases_in_code import phrases_in  # noqa: E402

LOCALES = ROOT / "locales"
SCRIPTS = ROOT / "web" / "js"

FOLDERS = ("ComfyUI-Paceline", "comfyui-paceline", "paceline")
"""Names of the pack's folder in custom_nodes: cloned, from the registry, and in our tests."""

SAME_IN_EVERY_LANGUAGE = re.compile(r"[\W\d_]*((Paceline|SSIM|PSNR|dB|MB|MiB|GiB|[a-z])[\W\d_]+)*")
"""Names, units and symbols, with a blank at their end."""

Tree = dict[str, Any]


def english() -> dict[str, Tree]:
    """Return every text that can be translated, by file (without ``.json``) and key."""
    settings = _settings(_read("settings"))
    page = (ROOT / "web" / "paceline.js").read_text(encoding="utf-8")
    commands = dict(re.findall(r'id: "(Paceline\.\w+)",\n +label: "(.+)"', page))
    categories = re.findall(r'category: \["(.+)"\]', _read("settings"))
    names = {name for category in categories for name in category.split('", "')[:2]}
    return {
        "nodeDefs": {name: _node(node.GET_SCHEMA()) for name, node in _nodes().items()},
        "settings": settings,
        "commands": {name.replace(".", "_"): {"label": label} for name, label in commands.items()},
        "main": {
            "settingsCategories": {name: name for name in sorted(names - {"Paceline"})},
            "menuLabels": {label: label for label in commands.values()},
            "paceline": load("en")["main"]["paceline"],
            "pacelineReports": {text: text for text in phrases_in(ROOT)},
            "templateWorkflows": {"category": dict.fromkeys(FOLDERS, "Paceline")},
        },
    }


def _nodes() -> dict[str, Any]:
    bootstrap()
    load_pack()
    return {name: node for name, node in load_nodes().items() if not node.GET_SCHEMA().is_dev_only}


def _node(schema: Any) -> Tree:
    tree: Tree = {"display_name": schema.display_name, "description": schema.description, "inputs": {}, "outputs": {}}
    for put in schema.inputs:
        tree["inputs"][put.id] = {"name": put.display_name or put.id}
    for index, put in enumerate(schema.outputs):
        tree["outputs"][str(index)] = {"name": put.display_name or put.io_type}
    return tree


def _settings(source: str) -> Tree:
    tree: Tree = {}
    sources = _read("badges") + _read("outcomes")
    ids = dict(re.findall(r'export const (\w+_SETTING) = "(.+)"', sources))
    for block in re.split(r"\n    \{\n", source)[1:]:
        (raw,) = re.findall(r"^      id: (.+),$", block, re.MULTILINE)
        found = dict(re.findall(r'^      (name|tooltip): "(.+)",$', block, re.MULTILINE))
        key = ids.get(raw, raw.strip('"')).replace(".", "_")
        tree[key] = found
    return tree


def _read(name: str) -> str:
    return next(SCRIPTS.rglob(f"{name}.js")).read_text(encoding="utf-8")


def frontends_own(source: Mapping[str, Tree]) -> Tree:
    """Return the English texts that the frontend does not find in the code: our words, headings of templates."""
    return {name: source["main"][name] for name in ("paceline", "templateWorkflows")}


def load(language: str) -> dict[str, Tree]:
    """Return the texts of a language, by file; empty trees for files that are missing."""
    trees = {}
    for name in ("nodeDefs", "settings", "commands", "main"):
        path = LOCALES / language / f"{name}.json"
        trees[name] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return trees


def languages() -> list[str]:
    """Return the languages that there are."""
    return sorted(path.name for path in LOCALES.glob("*/") if path.is_dir() and path.name != "en")


def texts(tree: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the value of every text."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from texts(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def merged(source: Mapping[str, Any], translated: Mapping[str, Any]) -> Tree:
    """Return ``source`` with every text for which there is one in ``translated``."""
    tree: Tree = {}
    for key, value in source.items():
        known = translated.get(key)
        if isinstance(value, Mapping):
            tree[key] = merged(value, known if isinstance(known, Mapping) else {})
        else:
            tree[key] = known if isinstance(known, str) else value
    return tree


def untranslated(source: Mapping[str, Any], translated: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the paths of the texts that are missing, or are sentences still in English."""
    known = dict(texts(translated))
    return [
        path
        for path, text in texts(source)
        if path not in known or (known[path] == text and " " in text and not _same_everywhere(text))
    ]


def _same_everywhere(text: str) -> bool:
    from paceline.optimizers.core.phrases import PLACEHOLDER

    return SAME_IN_EVERY_LANGUAGE.fullmatch(f"{PLACEHOLDER.sub('', text)} ") is not None


def main(chosen: list[str]) -> None:
    """Update the languages and print what is left to translate."""
    if strange := [language for language in chosen if not language.replace("-", "").isalpha() or language[0] == "-"]:
        raise SystemExit(f"{strange[0]} is no language. Give none, or codes such as fr or zh-TW.")
    source = english()
    (LOCALES / "en").mkdir(exist_ok=True)
    # The frontend's buttons take the names of commands from here too, and have none otherwise.
    for name, tree in (("main", frontends_own(source)), ("commands", source["commands"])):
        (LOCALES / "en" / f"{name}.json").write_text(f"{json.dumps(tree, indent=2)}\n", encoding="utf-8")
    for language in chosen or languages():
        present = load(language)
        folder = LOCALES / language
        folder.mkdir(parents=True, exist_ok=True)
        for name, tree in source.items():
            text = json.dumps(merged(tree, present[name]), ensure_ascii=False, indent=2)
            (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        for node in source["nodeDefs"]:
            page = DOCS / node / f"{language}.md"
            if not page.exists():
                page.write_text((DOCS / node / "en.md").read_text(encoding="utf-8"), encoding="utf-8")
        left = [path for name, tree in source.items() for path in untranslated(tree, present[name])]
        print(f"{language}: {len(left)} texts to translate", *(".".join(path) for path in left), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
