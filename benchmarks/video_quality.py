"""How far videos with fewer keys and values, or with Reuse Steps, stay from the plain ones, and would fewer steps do?

    python benchmarks/video_quality.py [--quick] [--json PATH] [--threads N]

The model is a small Wan that has learned moving icons, made by
``python demo/training/train_icons.py --geometry icons-video``.
"""

from __future__ import annotations

from dataclasses import replace

from peers import PICTURES_NOTES, pictures, tome
from shared.measuring import arguments
from shared.record import report
from shared.trained import ICONS_VIDEO, Bench, Solver, about_weights, reused

VARIANTS = {
    "kv_downsample 0.5": tome(method="kv_downsample", ratio=0.5),
    "kv_downsample 0.75": tome(method="kv_downsample", ratio=0.75),
    "kv_downsample 0.75 from half of the steps on": tome(method="kv_downsample", ratio=0.75, start_percent=0.5),
    "Reuse Steps 0.05": reused(0.05),
    "Reuse Steps 0.15": reused(0.15),
}


def main() -> None:
    """Measure all of it."""
    options = arguments(__doc__.splitlines()[0])
    if not ICONS_VIDEO.weights.is_file():
        print(f"{ICONS_VIDEO.weights} is not there: train it first, see above.")
        return
    witness = replace(ICONS_VIDEO, prompts=ICONS_VIDEO.prompts[: 2 if options.quick else 6])
    bench = Bench(witness, Solver("euler", "simple", 20), 1)
    notes = PICTURES_NOTES | {"weights": about_weights(ICONS_VIDEO)}
    report(list(pictures(bench, VARIANTS, least=6)), "the plain model from the same seed", options.json, notes)


if __name__ == "__main__":
    main()
