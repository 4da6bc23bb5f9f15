"""Where Optuna cannot be imported, Benchmark Sweep says what to install, and every other node is there and works."""

from __future__ import annotations

import subprocess
import sys

import pytest
from comfy_host.paths import ROOT
from paceline.core.errors import BackendUnavailable

LOADED = """
import sys
sys.path[:0] = [{tools!r}]
sys.modules.update(optuna=None)
from comfy_host import in_process, pack
in_process.bootstrap()
nodes = pack.load_nodes()
for node in nodes.values():
    node.GET_SCHEMA()
print(len(nodes), "PacelineBenchmarkSweep" in nodes)
"""


@pytest.mark.slow
def test_all_nodes_load(studio):
    code = LOADED.format(tools=str(ROOT / "tools"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(studio.nodes)} True"


def test_benchmark_sweep_says_what_to_install_and_the_rest_works(sweeping, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BackendUnavailable, match="Benchmark Sweep needs Optuna.*Run `pip install optuna`"):
        sweeping.run("size: 128")
    tome = sweeping.studio.tome(sweeping.model, preset="fast")
    assert tome.get_attachment("paceline").find("token_merging") is not None
