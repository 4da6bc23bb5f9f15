"""Draw docs/pair.webp: an icon plain and with Reuse Steps, an ordinary pair and the worst one of a file of results.

    python benchmarks/pages/pair.py

The pairs are those of results/step_caches_late_euler_cpu.json, which says how near each of the 32 is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER))
from shared.nodes import reused  # noqa: E402
from shared.trained import ICONS, Bench, Solver  # noqa: E402

PAGE = FOLDER.parent / "docs" / "pair.webp"
BUDGETS = (0.05, 0.15)


def main() -> None:
    """Draw and save it."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = json.loads((FOLDER / "results" / "step_caches_late_euler_cpu.json").read_text("utf-8"))["rows"]
    near = {row["name"]: row for row in found}
    bench = Bench(ICONS, Solver("euler", "normal", 30), seeds=2)
    decibels = {budget: list(map(float, near[f"Reuse Steps {budget}"]["pairs"]["psnr"].split())) for budget in BUDGETS}
    order = sorted(range(len(bench.pairs)), key=decibels[BUDGETS[-1]].__getitem__)
    figure, panels = pyplot.subplots(2, 3, figsize=(7.2, 5.3), layout="constrained")
    for line, (index, kind) in enumerate(((order[len(order) // 2], "ordinary"), (order[0], "the worst of 32"))):
        prompt, seed = bench.pairs[index]
        for column, budget in enumerate((None, *BUDGETS)):
            patcher = bench.patcher if budget is None else reused(budget)(bench.patcher)
            with torch.inference_mode():
                drawn = bench.pictures(bench.sample(patcher, prompt, seed, 30))[0]
            panel = panels[line, column]
            panel.imshow(drawn.clamp(0, 1).numpy(), interpolation="bicubic")
            panel.set(xticks=[], yticks=[], xlabel=f"{decibels[budget][index]:.1f} dB" if budget else kind)
            if line == 0 and budget:
                evaluations = near[f"Reuse Steps {budget}"]["quality"]["evaluations"]
                panel.set_title(f"Reuse Steps {budget}: {evaluations:.1f} of 30", fontsize=11)
            elif line == 0:
                panel.set_title("plain: 30 evaluations", fontsize=11)
    figure.savefig(PAGE, dpi=100, facecolor="white")


if __name__ == "__main__":
    main()
