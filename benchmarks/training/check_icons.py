"""Show that an icon model has learned words and not pictures, from captions that it was trained on and held-out ones.

    python benchmarks/training/check_icons.py [--weights PATH] [--captions 32] [--guidance 3] [--steps 30]
        [--sheet PATH]

- *Seeds*: two pictures of one caption differ about as much as two drawings of it that were never seen.
- *Recognised*: the nearest of many drawings is of the caption's shape; they are of all shapes in the caption's colour
  and style, of a video of all shapes and motions in its colour, and both have to be right. Beside it the same for real
  drawings, which is the most that this way of telling can reach, and chance.
- *Nearest*: how far the nearest of these drawings is, beside how far it is from a new real drawing: much nearer would
  mean a picture by heart. No drawing is seen twice in training, so there is no set of pictures to compare with.

A row of the sheet has four captions, each with a drawing and three seeds; every second caption was held out. Of videos
a row is a drawing's frames, and beside them those of one seed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "demo" / "icon_nodes")]
import icon_data  # noqa: E402
import icon_motion  # noqa: E402
from comfy_host import in_process  # noqa: E402
from comfy_host.paths import cache_dir  # noqa: E402

DRAWINGS = 64
"""Of each shape, or of each shape and motion, to find the nearest one among."""


def beside(caption: str, source: icon_data.Icons) -> list[str]:
    """Return the captions that this one is told from, itself among them."""
    hue, _, last = caption.split()
    if isinstance(source, icon_motion.Motions):
        return [f"{hue} {shape} {motion}" for shape in icon_motion.SHAPES for motion in icon_motion.MOTIONS]
    return [f"{hue} {shape} {last}" for shape in icon_data.SHAPES]


def sampled(model: Any, encode: Any, drawing: Tensor, captions: list[str], seed: int, options: Any) -> Tensor:
    """Return what the model draws, as large as ``drawing``; each caption has noise of its own."""
    words = torch.cat([encode(caption)[0][0] for caption in captions])
    pooled = {"pooled_output": words.mean(1)} if encode.pooled else {}
    steps, *solver = (30, "euler", "simple") if encode.pooled else (20, "dpmpp_2m", "karras")
    given = (torch.zeros_like(drawing), seed, options.steps or steps, options.guidance, *solver)
    latents: Tensor = in_process.sample(model, [[words, pooled]], encode(""), *given)
    return latents.cpu().clamp(-1, 1)


def rms(a: Tensor, b: Tensor) -> list[float]:
    """Return the root mean square difference of each pair."""
    return (a - b).square().flatten(1).mean(1).sqrt().tolist()


def nearest(source: icon_data.Icons, pictures: Tensor, captions: list[str]) -> tuple[list[str], list[float]]:
    """Return the caption of the drawing nearest to each picture, and how far that is."""
    found, distances = [], []
    for picture, caption in zip(pictures, captions, strict=True):
        names = [name for name in beside(caption, source) for _ in range(DRAWINGS)]
        drawn = source.drawings(names)
        apart = rms(drawn, picture.to(drawn))
        found.append(names[apart.index(min(apart))])
        distances.append(min(apart))
    return found, distances


def check(name: str, source: icon_data.Icons, captions: list[str], drawn: list[Tensor], pictures: list[Tensor]) -> None:
    """Print what was found about pictures of some captions, one tensor for each seed, beside two drawings of each."""
    for what, found in (("two seeds", rms(*pictures[:2])), ("two drawings", rms(*drawn))):
        print(f"{name}: {what} differ by {statistics.fmean(found):.3f} (least {min(found):.3f})")
    for whose, shown in (("the model's", pictures[0]), ("real drawings", drawn[0])):
        names, distances = nearest(source, shown, captions)
        right = sum(name == caption for name, caption in zip(names, captions, strict=True))
        others = len(beside(captions[0], source))
        print(
            f"  {whose}: recognised {right} of {len(captions)} (chance {len(captions) / others:.1f}); nearest of "
            f"{DRAWINGS * others} drawings at {statistics.fmean(distances):.3f} (least {min(distances):.3f})",
            flush=True,
        )


def save_sheet(pictures: Tensor, path: Path, columns: int = 16) -> None:
    """Write pictures, or the frames of videos, ``[count, 4, (frames,) side, side]``, as one PNG, enlarged."""
    import model as loader

    frames = pictures if pictures.ndim == 4 else pictures.transpose(1, 2).flatten(0, 1)
    rgb = (loader.decode(frames, scale=4) * 255.0).round().to(torch.uint8)
    whole = torch.nn.functional.pad(rgb, (0, 0, 0, 0, 0, 0, 0, -len(rgb) % columns), value=255)
    rows = [torch.cat(list(row), dim=1) for row in whole.split(columns)]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(torch.cat(rows).numpy()).save(path)
    print(f"sheet: {path}")


def main() -> None:
    """Sample, compare, draw the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=icon_data.WEIGHTS["icons32"])
    parser.add_argument("--captions", type=int, default=32, help="of each kind")
    parser.add_argument("--guidance", type=float, default=3.0, help="1 for a distilled model")
    parser.add_argument("--steps", type=int, help="20 or 30, fewer for a distilled model")
    parser.add_argument("--sheet", type=Path, default=cache_dir() / "icons" / "sheet.png")
    options = parser.parse_args()
    in_process.bootstrap(cpu=False)
    import model as loader

    model, encode = loader.load(options.weights)
    kind = icon_motion.Motions if model.model.latent_format.latent_dimensions == 3 else icon_data.Icons
    device = "cuda" if torch.cuda.is_available() else "cpu"
    source = kind(cache_dir() / "icons", icon_data.side(options.weights), device)
    torch.manual_seed(0)
    rows: list[Tensor] = []
    for name, all_of_them in (("trained", source.captions), ("held out", source.held_out)):
        captions = [all_of_them[place] for place in torch.randperm(len(all_of_them))[: options.captions].tolist()]
        drawn = [source.drawings(captions).cpu() for _ in range(2)]
        pictures = [sampled(model, encode, drawn[0], captions, seed, options) for seed in (1, 2, 3)]
        check(name, source, captions, drawn, pictures)
        rows.append(torch.stack([drawn[0], *pictures], 1))
    sheet = torch.stack(rows, 1).flatten(0, 1)  # a trained caption, a held-out one, in turn
    if sheet.ndim == 6:  # [captions, drawing and seeds, 4, frames, side, side]
        sheet = sheet[:, :2]
    save_sheet(sheet.flatten(0, 1), options.sheet)


if __name__ == "__main__":
    main()
