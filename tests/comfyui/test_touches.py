"""The list of what we touch of ComfyUI is whole, and each line of it is true of the ComfyUI that the tests run with."""

from __future__ import annotations

import ast
import asyncio
from importlib import import_module

import pytest
from comfy_host.paths import ROOT
from paceline.workbench.comfyui.machine import NEWEST_TESTED
from touches import PARAMETERS, TOUCHES, problem

# What our patches of a UNet's attention read of what they are told, as ``extra_options``.
OPTIONS = {
    *("activations_shape", "block", "block_index", "cond_or_uncond", "n_heads", "sample_sigmas", "sigmas"),
    *("transformer_index", "uuids", "wrappers"),
}
HOST = ("comfy", "comfy_api", "comfy_execution", "comfy_kitchen", "execution", "folder_paths")
LISTED = [touch for touches in TOUCHES.values() for touch in touches]


def touched() -> set[str]:
    """Return what our sources import of ComfyUI, and the attributes that they look up on it, as ``module:path``."""
    found: set[str] = set()
    for folder in ("core", "optimizers", "workbench", "recipes", "faster", "server", "nodes"):
        for path in (ROOT / folder).rglob("*.py"):
            tree, names = ast.parse(path.read_text(encoding="utf-8")), {}
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    hosts = [alias for alias in node.names if alias.name.split(".")[0] in HOST]
                    names |= {alias.asname or alias.name.split(".")[0]: alias for alias in hosts}
                    names = {
                        name: alias if isinstance(alias, str) else alias.name if alias.asname else name
                        for name, alias in names.items()
                    }
                elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in HOST:
                    names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                    found |= {f"{node.module}.{alias.name}" for alias in node.names}
            for node in ast.walk(tree):
                chain: list[str] = []
                while isinstance(node, ast.Attribute):
                    chain, node = [node.attr, *chain], node.value
                if chain and isinstance(node, ast.Name) and node.id in names:
                    found.add(".".join([names[node.id], *chain]))
    return found


def is_module(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def test_everything_that_is_touched_is_in_the_list(studio):
    listed = {touch.replace(":", ".") for touch in LISTED}
    missing = [
        name
        for name in sorted(touched())
        if not any(entry == name or entry.startswith(f"{name}.") or name.startswith(f"{entry}.") for entry in listed)
        and not is_module(name)
    ]
    assert not missing, "add them to tests/touches.py"


def test_nothing_in_the_list_is_left_over(studio):
    names = touched()
    listed = [touch.replace(":", ".") for touch in LISTED]
    assert not [entry for entry in listed if not any(n == entry or n.startswith(f"{entry}.") for n in names)]


@pytest.mark.parametrize("touch", [*LISTED, *PARAMETERS])
def test_the_contract_holds(studio, touch):
    assert problem(touch) == ""


def test_a_break_is_named(studio, monkeypatch):
    import comfy.sample

    monkeypatch.delattr(comfy.sample, "prepare_noise")
    monkeypatch.setattr(comfy.sample, "sample", lambda model, noise: None)
    assert "comfy.sample:prepare_noise is missing" in problem("comfy.sample:prepare_noise")
    assert "comfy.sample:sample takes model, noise, not model" in problem("comfy.sample:sample")


def test_patches_are_told_what_we_read(studio):
    seen: list[set[str]] = []

    def look(q, k, v, extra_options):
        seen.append(set(extra_options))
        return q, k, v

    model = studio.model.clone()
    model.set_model_attn1_patch(look)
    studio.sample(model, steps=1)
    assert seen
    assert not OPTIONS - set.intersection(*seen)


@pytest.mark.parametrize(
    ("version", "said"),
    [(NEWEST_TESTED, False), ("0.27.0", False), ("unknown version", False), ("0.38.1", True), ("1.0", True)],
)
def test_the_start_log_says_in_one_line_what_is_untested(studio, monkeypatch, caplog, version, said):
    import comfyui_version
    from paceline.nodes import INTERNAL, NODES, PacelineExtension

    monkeypatch.setattr(comfyui_version, "__version__", version)
    with caplog.at_level("WARNING"):
        assert len(asyncio.run(PacelineExtension().get_node_list())) == len(NODES) + len(INTERNAL)
    lines = [message for message in caplog.messages if message.startswith("Paceline: ComfyUI")]
    assert len(lines) == said
    if said:
        assert f"ComfyUI {version} is newer than {NEWEST_TESTED}" in lines[0]
