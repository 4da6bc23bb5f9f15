"""The plot of peers.py: how near the picture stays, over the work of the network that is left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages.plot_step_caches import COLORS, FEWER, LABELS, REUSE

WAYS = {
    "Apply ToMe": ("Apply ToMe, presets", COLORS[REUSE]),
    "ComfyUI TomePatchModel": ("ComfyUI's TomePatchModel 0.5", COLORS["EasyCache"]),
    " steps": (FEWER, COLORS[FEWER]),
}


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the mean beside the worst picture, a line for each way."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    for (field, title), panel in zip(LABELS.items(), panels, strict=True):
        for name, (label, color) in WAYS.items():
            points = sorted((_work(row), row["quality"][field], row["name"]) for row in rows if name in row["name"])
            panel.plot(
                *([point[axis] for point in points] for axis in (0, 1)), color=color, label=label, marker="o",
                markersize=5, linestyle="--" if label == FEWER else "-", linewidth=2,
            )  # fmt: skip
            for work, nearness, whole in points:
                short = whole.replace("Apply ToMe, ", "").replace("ComfyUI ", "")
                above = name == "Apply ToMe"
                panel.annotate(short, (work, nearness), xytext=(-5, 5) if above else (4, -11),
                               textcoords="offset points", ha="right" if above else "left", color=color,
                               fontsize=8.5)  # fmt: skip
        panel.set_title(title, fontsize=11)
        panel.set_xlabel("work of the network left")
        panel.set_xlim(0.62, 0.98)
        panel.xaxis.set_major_formatter("{x:.0%}")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    panels[0].legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(path, dpi=100, facecolor="white")
    pyplot.close(figure)


def _work(row: dict[str, Any]) -> float:
    """Return the share of the work that a row leaves; of fewer steps, the share of the steps."""
    steps = int(row["work"].split(" steps")[0].split(" ")[-1])
    return float(row["quality"].get("work_left", row["quality"].get("evaluations", steps) / steps))


if __name__ == "__main__":  # the plot of a file of results anew
    import json

    results = Path(sys.argv[1])
    plot(json.loads(results.read_text(encoding="utf-8"))["rows"], results.with_suffix(".png"))
