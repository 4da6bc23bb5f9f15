"""A workflow with Benchmark Sweep on ComfyUI's page."""

from __future__ import annotations

from typing import Any

from .graphs import TRAINED
from .page import VUE, Page


def build(page: Page, **values: Any) -> int:
    """Open a workflow with a sweep of the demo's small trained model; return the number of its node."""
    page.use(VUE)
    return page.build(
        TRAINED
        + """
        const other = make("PacelineModelPrecision", 320, 520, {});
        const rounds = { runs: args[1], most_runs: 0 };
        const settings = { seed: 42, cfg: 2, sampler_name: "dpmpp_2m", scheduler: "karras", steps: 2, ...rounds };
        const sweep = make("PacelineBenchmarkSweep", 660, 0, { ...settings, ...args[0] });
        link(loader, 0, sweep, "model");
        link(loader, 0, other, "model");
        sampled(sweep);
        return sweep.id;
        """,
        values,
        2,
    )
