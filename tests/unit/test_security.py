"""What SECURITY.md promises of the sources as a whole; single attacks are tested where they would enter."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from comfy_host.paths import ROOT

FOLDERS = ("optimizers", "measure", "service", "nodes", "scripts")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|\beval\(|new Function")
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
NEVER_IMPORTED = {"pickle", "marshal", "shelve", "subprocess", "urllib", "http", "socket", "requests", "ftplib"}
CONNECTS = "service/faster/tune.py"
"""The command ``tune`` asks the ComfyUI that the user names. No node, no route and no other command may use it."""


def test_nothing_becomes_markup_or_script_in_the_page():
    scripts = list((ROOT / "web").rglob("*.js"))
    assert len(scripts) > 10
    assert not [path.name for path in scripts if MARKUP.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_runs_text_reads_pickle_or_opens_a_connection(path: Path):
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in NEVER_IMPORTED]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [node.module] if (node.module or "").split(".")[0] in NEVER_IMPORTED else []
        elif isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            # torch.compile and re.compile are other functions of that name.
            found += [text] if text in RUNS_CODE or text in ("os.system", "torch.load") else []
    found = [name for name in found if name != "urllib.parse"]  # which reads text only
    assert found == (["http.client"] if path == ROOT / CONNECTS else [])


def test_only_the_command_tune_connects():
    imported = re.compile(r"^\s*(from|import) .*\btune\b", re.MULTILINE)
    assert not [path.name for path in SOURCES if imported.search(path.read_text(encoding="utf-8"))]


def test_every_route_is_described():
    described = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    routes = {
        match for path in SOURCES for match in re.findall(r'= "(/paceline/[^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert {"/paceline/cache", "/paceline/report"} <= routes
    assert not [route for route in routes if f" {route}`" not in described]
