"""What the Comfy Registry accepts and serves, made and checked by its own tool, and installed into a clean ComfyUI."""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from pathlib import Path

import pytest
from comfy_host.paths import ROOT
from comfy_host.server import ComfyServer
from e2e.package_tools import copy_of_the_pack, environment, run

# Each night, and before a release: the registry's tool is installed for it.
pytestmark = [pytest.mark.slow, pytest.mark.thorough]

LARGEST = 2_000_000
NOT_SHIPPED = ("tests/", "tools/", "benchmarks/", "docs/", "examples/", ".github/", ".ci/")
OF_WEBUI = ("scripts/", "localizations/", "metadata.ini", "optimizers/in_webui/")
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
    assert [name for name in names if name.startswith(NOT_SHIPPED + OF_WEBUI)] == []
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


def brought(log: str, pack: str) -> set[str]:
    """Top-level packages that a module with ``pack`` in its name was the first to import, of Python's import times."""
    found: set[str] = set()
    above: list[str] = []
    for line in reversed(log.splitlines()):  # Python writes a module after those that it imports, and less indented
        if match := re.match(r"import time: +\d+ \| +\d+ \|( +)(\S+)", line):
            depth = len(match[1]) // 2
            above[depth:] = [match[2]]
            if pack not in match[2] and any(pack in name for name in above):
                found.add(match[2].partition(".")[0])
    return found


def test_a_clean_comfyui_loads_it_with_no_warning_and_no_further_package(archive: zipfile.ZipFile, tmp_path: Path):
    """Whatever a node needs beside Python's and ComfyUI's own packages is imported when the node runs."""
    pack = tmp_path / "ComfyUI-Paceline"
    archive.extractall(pack)
    with (
        ComfyServer([pack], cpu=True, load_pack=False, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as server,
        server.client() as client,
    ):
        nodes = set(client.object_info())
        log, failed, folder = server.log, server.failed_imports, server.base_directory
    assert not folder.exists(), "what the tests' server leaves behind"
    listed = ast.literal_eval(
        re.search(r"^FILES = ({.*?^})", (pack / "nodes" / "__init__.py").read_text(), re.M | re.S)[1]
    )
    assert nodes >= set(listed)
    assert failed == []
    said = [line for line in log.splitlines() if "paceline" in line.lower()]
    assert [line for line in said if re.search(r"WARN|ERROR|Warning:|Traceback", line)] == []
    assert "core.errors" in log and pack.name in log
    assert brought(log, pack.name) - sys.stdlib_module_names == set()
