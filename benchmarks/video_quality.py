"""How far videos with fewer keys and values, or with Reuse Steps, stay from the plain ones, and would fewer steps do?

    python benchmarks/video_quality.py [--quick] [--json PATH] [--threads N]

The model is a small Wan that has learned moving icons, made by ``python tools/train_emoji.py --geometry icons-video``.
Beside each ratio of Apply ToMe stands the plain model with as many steps as have no more operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from common import arguments
from record import Row, report
from roof import operations
from step_caches import NOTES, controls
from step_caches import measure as with_reuse
from step_reuse import ICONS_VIDEO, Bench, Solver, about_weights
from step_reuse_quality import quality

from comfy_host.pack import load_nodes  # isort: skip; `step_reuse` has made it importable

SOLVER = Solver("euler", "simple", 20)
THINNED: dict[str, dict[str, Any]] = {
    "kv_downsample 0.5": {"ratio": 0.5},
    "kv_downsample 0.75": {"ratio": 0.75},
    "kv_downsample 0.75 from half of the steps on": {"ratio": 0.75, "start_percent": 0.5},
}


def thinned(bench: Bench, work: str) -> Iterator[Row]:
    """Yield the rows of Apply ToMe, each with its control."""
    node = load_nodes()["PacelineApplyToMe"]
    settings = {"preset": "custom", "method": "kv_downsample", "max_downsample": "auto"}

    def cost(model: Any) -> int:
        return operations(lambda: bench.sample(model, *bench.pairs[0], bench.solver.steps))

    whole = cost(bench.patcher)
    for name, more in THINNED.items():
        model = node.execute(model=bench.patcher, **settings, **more).args[0]
        found = quality(bench, (bench.sample(model, *pair, bench.solver.steps) for pair in bench.pairs))[0]
        left = cost(model) / whole
        yield Row(name, work, quality=found | {"work_left": left})
        steps = int(left * bench.solver.steps)
        fewer = quality(bench, (bench.plain(*pair, steps) for pair in bench.pairs))[0]
        yield Row(f"fewer steps, beside {name}", work, quality=fewer | {"evaluations": float(steps)})


def main() -> None:
    """Measure all of it."""
    options = arguments(__doc__.splitlines()[0])
    bench = Bench(replace(ICONS_VIDEO, prompts=ICONS_VIDEO.prompts[: 2 if options.quick else 6]), SOLVER, 1)
    work = f"{ICONS_VIDEO.name}, {SOLVER.name}, guidance {ICONS_VIDEO.guidance:g}, {len(bench.pairs)} pairs"
    rows = [Row(name, work, quality=numbers) for name, numbers in controls(bench)]
    rows += thinned(bench, work)
    rows += with_reuse(bench, (0.05, 0.15), False)
    weights = {"work left": "operations of all matrix products", "weights": about_weights(ICONS_VIDEO)}
    report(rows, "the plain model with all steps, from the same seed", options.json, NOTES | weights)


if __name__ == "__main__":
    main()
