"""What the Comfy Registry accepts and serves, made and checked by its own tool."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from comfy_host.paths import ROOT
from e2e.package_tools import copy_of_the_pack, environment, run

pytestmark = pytest.mark.slow

LARGEST = 3_000_000
NOT_SHIPPED = ("tests/", "tools/", "benchmarks/", "demo/", "docs/", ".github/", ".ci/", ".git/")
# What the registry's scanners look for, also where it is harmless.
FLAGGED = re.compile(
    r"\b(eval|exec)\(|\bsubprocess\b|\bos\.system\b|\bimport pickle|\bpickle\.loads?\b|base64\.b64decode"
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    comfy = environment() / "comfy"
    folder = copy_of_the_pack(tmp_path_factory.mktemp("pack"))
    arguments = ("--skip-prompt", "--no-enable-telemetry", "node")
    said = run(comfy, *arguments, "validate", folder=folder)
    assert "All validation checks passed" in said
    assert "warning" not in said.lower()
    run(comfy, *arguments, "pack", folder=folder)
    path = folder / "node.zip"
    assert path.stat().st_size < LARGEST
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_archive_has_what_runs_and_nothing_else(archive: zipfile.ZipFile):
    names = archive.namelist()
    for needed in ("__init__.py", "pyproject.toml", "LICENSE", "web/paceline.js", "nodes/__init__.py"):
        assert needed in names
    assert [name for name in names if name.startswith(NOT_SHIPPED)] == []
    for folder in ("web/docs", "locales", "example_workflows"):
        shipped = {name for name in names if name.startswith(f"{folder}/") and not name.endswith("/")}
        assert shipped == {str(path.relative_to(ROOT)) for path in Path(ROOT / folder).rglob("*") if path.is_file()}


def test_no_python_file_has_what_the_scanners_flag(archive: zipfile.ZipFile):
    found = [
        f"{name}: {match[0]}"
        for name in archive.namelist()
        if name.endswith(".py")
        for match in FLAGGED.finditer(archive.read(name).decode())
    ]
    assert found == []
