"""Show that the icon model has learned words and not pictures, from captions that it was trained on and held-out ones.

    python demo/training/check_icons.py [--weights PATH] [--captions 32] [--guidance 3] [--sheet PATH]

- *Seeds*: two pictures of one caption differ about as much as two drawings of it that were never seen.
- *Recognised*: the nearest of many drawings of all shapes, in the caption's colour and style, is of the caption's
  shape; beside it the same for real drawings, which is the most that this way of telling can reach, and chance.
- *Nearest*: how far the nearest of these drawings is, beside how far it is from a new real drawing: much nearer would
  mean a picture by heart. No drawing is seen twice in training, so there is no set of pictures to compare with.

A row of the sheet has four captions, each with a drawing and three seeds; every second caption was held out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import icon_data  # noqa: E402
import icon_words  # noqa: E402
from comfy_host import in_process  # noqa: E402
from comfy_host.paths import ROOT, cache_dir  # noqa: E402

DRAWINGS = 64
"""Of each shape, to find the nearest one among."""


def sampled(model: Any, encode: Any, captions: list[str], size: int, seed: int, guidance: float) -> Tensor:
    """Return what the model draws, ``[captions, 4, size, size]``; each caption has noise of its own."""
    words = torch.cat([encode(caption)[0][0] for caption in captions])
    blank = torch.zeros(len(captions), 4, size, size)
    pooled = {"pooled_output": words.mean(1)} if encode.pooled else {}
    steps, *solver = (30, "euler", "simple") if encode.pooled else (20, "dpmpp_2m", "karras")
    latents: Tensor = in_process.sample(model, [[words, pooled]], encode(""), blank, seed, steps, guidance, *solver)
    return latents.clamp(-1, 1)


def rms(a: Tensor, b: Tensor) -> list[float]:
    """Return the root mean square difference of each pair."""
    return (a - b).square().flatten(1).mean(1).sqrt().tolist()


def nearest(icons: icon_data.Icons, pictures: Tensor, captions: list[str]) -> tuple[list[str], list[float]]:
    """Return the shape of the drawing nearest to each picture, and how far that is."""
    shapes, found, distances = list(icon_data.SHAPES), [], []
    for picture, caption in zip(pictures, captions, strict=True):
        hue, _, style = caption.split()
        names = [f"{hue} {shape} {style}" for shape in shapes for _ in range(DRAWINGS)]
        drawn = icons.draw(names, icon_data.Nuisance.random(len(names), icons.side))
        errors = (drawn - picture).square().flatten(1).mean(1)
        best = int(errors.argmin())
        found.append(shapes[best // DRAWINGS])
        distances.append(float(errors[best].sqrt()))
    return found, distances


def check(name: str, icons: icon_data.Icons, captions: list[str], pictures: list[Tensor]) -> None:
    """Print what was found about pictures of some captions, one tensor for each seed."""
    count = len(captions)
    drawings = [icons.draw(captions, icon_data.Nuisance.random(count, icons.side)) for _ in range(2)]
    seeds, drawn = rms(pictures[0], pictures[1]), rms(drawings[0], drawings[1])
    print(
        f"{name}: two seeds differ by {statistics.fmean(seeds):.3f} (least {min(seeds):.3f}); "
        f"two drawings by {statistics.fmean(drawn):.3f} (least {min(drawn):.3f})"
    )
    for whose, shown in (("the model's", pictures[0]), ("real drawings", drawings[0])):
        shapes, distances = nearest(icons, shown, captions)
        right = sum(shape == caption.split()[1] for shape, caption in zip(shapes, captions, strict=True))
        print(
            f"  {whose}: recognised {right} of {count} (chance {count / len(icon_data.SHAPES):.1f}); nearest of "
            f"{DRAWINGS * len(icon_data.SHAPES)} drawings at {statistics.fmean(distances):.3f} "
            f"(least {min(distances):.3f})",
            flush=True,
        )


def main() -> None:
    """Sample, compare, draw the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=icon_data.WEIGHTS["icons32"])
    parser.add_argument("--captions", type=int, default=32, help="of each kind")
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--sheet", type=Path, default=cache_dir() / "icons" / "sheet.png")
    options = parser.parse_args()
    in_process.bootstrap()
    sys.path.insert(0, str(ROOT / "demo" / "icon_nodes"))
    import model as loader

    model, encode = loader.load(options.weights)
    size = icon_data.side(options.weights)
    icons = icon_data.Icons(cache_dir() / "icons", size)
    torch.manual_seed(0)
    rows: list[Tensor] = []
    for name, all_of_them in (("trained", icons.captions), ("held out", icons.held_out)):
        captions = [all_of_them[place] for place in torch.randperm(len(all_of_them))[: options.captions].tolist()]
        pictures = [sampled(model, encode, captions, size, seed, options.guidance) for seed in (1, 2, 3)]
        check(name, icons, captions, pictures)
        drawings = icons.draw(captions, icon_data.Nuisance.random(len(captions), icons.side))
        rows.append(torch.stack([drawings, *pictures], 1))
    sheet = torch.stack(rows, 1).flatten(0, 2)  # a trained caption, a held-out one, in turn
    icon_words.save_grid(sheet, options.sheet, columns=16)
    print(f"sheet: {options.sheet}")


if __name__ == "__main__":
    main()
