"""The plot of token_reduction_quality.py: how near the picture stays, over how much work is left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

LINES = {
    "merge": ("merge, random destinations (ToMe)", "C0", "o"),
    "merge top-left": ("merge, top-left destinations", "C9", "v"),
    "merge shared": ("merge, matching shared by blocks and 5 steps", "C4", "s"),
    "local merge": ("local merge (after ToMA)", "C5", "D"),
    "merge keys": ("merge keys and values only", "C6", "P"),
    "kv borders": ("thin keys and values, borders kept (Apply ToMe)", "k", "*"),
    "kv nearest": ("thin keys and values: first of each cell (ToDo)", "C2", "^"),
    "kv last": ("thin keys and values: last of each cell", "C1", "<"),
    "kv edges": ("thin keys and values: from edge to edge", "C8", ">"),
    "kv mean": ("thin keys and values: mean of each cell", "C3", "X"),
}
CONTROLS = {"bf16": "-", "one step fewer": "-.", "other seed": ":", "no attention": "--"}


def plot(rows: Sequence[dict[str, Any]], levels: Sequence[str], path: Path) -> None:
    """Draw quality over work, one panel per model and level."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    titles = {"terrain": "Terrain model, 1 step", "emoji": "Emoji model, 25 steps"}
    figure, panels = pyplot.subplots(2, len(levels), figsize=(13, 10.5), sharey="row", layout="constrained")
    for (model, title), row_of_panels in zip(titles.items(), panels, strict=True):
        for level, panel in zip(levels, row_of_panels, strict=True):
            for method, (label, color, marker) in LINES.items():
                points = sorted(
                    (row["quality"]["work_left"], row["quality"]["psnr"])
                    for row in rows
                    if row["work"] == f"{model}, {level}" and row["name"].rpartition(" ")[0] == method
                )
                panel.plot(*zip(*points, strict=True) if points else ((), ()), color, marker=marker, label=label)
            for row in rows:
                if row["name"] in CONTROLS and row["work"] in (model, f"{model}, {level}"):
                    panel.axhline(row["quality"]["psnr"], color="0.4", linestyle=CONTROLS[row["name"]], linewidth=1)
                    place = (0.995, row["quality"]["psnr"])
                    panel.annotate(row["name"], place, xycoords=("axes fraction", "data"), ha="right",
                                   va="top" if row["name"] == "no attention" else "bottom",
                                   fontsize=8, color="0.3")  # fmt: skip
            panel.set(title=f"{title}\nreduced at {level} tokens", xscale="log", xlim=(0.06, 1.0))
            panel.set_xticks([0.1, 0.2, 0.3, 0.5, 1.0], ["10 %", "20 %", "30 %", "50 %", "100 %"])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        row_of_panels[0].set_ylabel("PSNR against the unmodified model, dB (higher is nearer)")
    for panel in panels[-1]:
        panel.set_xlabel("self-attention's operations left at these levels, with matching and merging (log)")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle("What token reduction does to the picture: up is better, left is less work", fontsize=13)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
