"""Each part of a technique wins a row, was asked for by name, or is on probation: `benchmarks/worth.toml`."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
import tomllib
from comfy_host import in_process, pack
from comfy_host.paths import ROOT

WORTH = tomllib.loads((ROOT / "benchmarks" / "worth.toml").read_text("utf-8"))
ON_PROBATION = [name for names in WORTH["on_probation"].values() for name in names]
LISTED = [*WORTH["wins"], *WORTH["asked_for_by_name"], *ON_PROBATION]
NO_SETTING = {"model", "vae", "control_net", "clip"}
"""Inputs that hand on what is optimized."""


def parts() -> set[str]:
    """Inputs of the nodes of techniques, as ``node.input``, and files of techniques, as ``technique/file``."""
    in_process.bootstrap()
    found = set()
    for node, kind in pack.load_nodes().items():
        if any(base.__name__ == "TechniqueNode" for base in kind.__mro__):
            inputs = {put.id for put in kind.define_schema().inputs} - NO_SETTING
            found |= {f"{node.removeprefix('Paceline')}.{name}" for name in inputs}
    for folder in (ROOT / "optimizers").iterdir():
        if [*folder.glob("*_policy.py")]:
            found |= {f"{folder.name}/{file.name}" for file in folder.glob("*.py") if file.name != "__init__.py"}
    return found


def test_each_part_of_a_technique_wins_a_row_or_says_why_it_stays():
    found = parts()
    missing = {name for name in found if not any(fnmatchcase(name, listed) for listed in LISTED)}
    assert not missing, "name the row of docs/results.md that it wins in benchmarks/worth.toml, or take it out"
    left = {listed for listed in LISTED if not any(fnmatchcase(name, listed) for name in found)}
    assert not left, "these are in benchmarks/worth.toml, and no longer in the pack"


@pytest.mark.parametrize("name", WORTH["wins"])
def test_the_row_that_is_named_is_there(name):
    lines = (ROOT / "docs" / "results.md").read_text("utf-8").splitlines()
    assert any(line.startswith(f"| {WORTH['wins'][name]} |") for line in lines), WORTH["wins"][name]


def test_probation_ends_and_has_a_reason():
    for until, names in WORTH["on_probation"].items():
        assert until.startswith("until ") and all(len(reason.split()) > 3 for reason in names.values()), until
