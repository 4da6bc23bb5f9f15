"""What compiling costs and wins, from the kept runs of this machine: for what would take too long to be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ..core.phrases import phrase
from ..workbench.expectation.expect import Probed
from ..workbench.measurement.slower import KeptRun
from .kept import about, facts_here
from .workflow import Workflow

COMPILING = {"PacelineCompileUNet": "steps", "PacelineCompileVAE": "vae"}
"""Nodes that cost time once, and the stage of a run that each makes shorter."""


ROUNDING = 0.001
"""Error of a prediction that is taken for that of compiled code, which rounds otherwise."""


def foretold(node: str, title: str, workflow: Workflow, runs: Sequence[KeptRun]) -> Probed | None:
    """Return what runs on this machine tell of a node that compiles; None where they do not say what it costs.

    ``title`` is the node's; the models of the ``workflow``, which is without it, are loaded.
    """
    stage, now, facts = COMPILING.get(node), about(workflow), facts_here()
    if stage is None:
        return None
    alike = [run for run in runs if run.facts == facts and run.about.get("family") == now.get("family")]
    having = [run for run in alike if title in _nodes(run.about)]
    # Of a VAE it is not told apart from decoding.
    costs = [run.seconds.get("compiling", 0.0) for run in having if stage == "steps"]
    once = max([*costs, *(run.given_up.get(title, 0.0) for run in alike)], default=0.0)
    if not once:
        return None
    plain = [run.seconds[stage] for run in alike if run.about == now and stage in run.seconds]
    ready = [run for run in having if _without(title, run.about) == now and not run.seconds.get("compiling")]
    faster = [run.seconds[stage] for run in ready if run.seconds.get(stage)]
    if plain and faster:
        ends = min(plain) / max(faster), median(plain) / median(faster), max(plain) / min(faster)
        return Probed(title, ends, clear=True, error=ROUNDING, points=1, once=once)
    why = phrase("compiling took {seconds:.0f} s or more on this machine, too long to try it here", seconds=once)
    return Probed(title, why_not=why, once=once)


def _nodes(about: Mapping[str, str]) -> list[str]:
    return about.get("nodes", "").split(", ")


def _without(title: str, about: Mapping[str, str]) -> dict[str, str]:
    left = {**about, "nodes": ", ".join(name for name in _nodes(about) if name != title)}
    return {name: value for name, value in left.items() if value}
