"""Distil an image transformer of the icons to few steps, with the guidance inside: progressive distillation.

    python benchmarks/training/distil_icons.py --teacher WEIGHTS --out FILE [--paths 352] [--steps 183]

First it draws where the teacher passes the levels of a schedule of 8 steps, from noise to picture: Euler, guided, in
finer steps. Then the student starts from the teacher and learns to go from each of these levels to the next one in one
step without guidance: the last round of arXiv 2202.00512, with guidance as in 2210.03142. The captions are those of
training, and each path has a seed of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
import icon_data  # noqa: E402
from icon_learning import Learner  # noqa: E402
from icon_nets import Net, as_of, trained  # noqa: E402

LEVELS, FINER, GUIDANCE = 8, 2, 3.0
"""Steps of the student, the teacher's in each of these, and the teacher's guidance."""
TOGETHER, BATCH, RATE = 8, 16, 1e-3
"""Paths that are drawn at once, pictures in a step of training, and its learning rate."""


def levels_of(steps: int, side: int) -> list[float]:
    """Return the noise levels of ComfyUI's ``simple``, with the model's own shift, the last one, 0, included."""
    return as_of(torch.linspace(1, 0, steps + 1, dtype=torch.float64), side / 32).tolist()


@torch.no_grad()
def drawn(net: Net, number: int) -> tuple[Tensor, list[str]]:
    """Return some of the teacher's paths, ``[TOGETHER, LEVELS + 1, 4, side, side]``, and their captions."""
    side, captions = net.settings["side"], icon_data.combinations()[0]
    random = torch.Generator().manual_seed(1_000_000 + number)
    picked = [captions[place] for place in torch.randint(len(captions), (TOGETHER,), generator=random).tolist()]
    x = torch.randn(TOGETHER, 4, side, side, generator=random)
    path, levels = [x], levels_of(LEVELS * FINER, side)
    for now, then in zip(levels[:-1], levels[1:], strict=True):
        with torch.autocast("cpu", torch.bfloat16):
            both = net(torch.cat([x, x]), torch.full((2 * TOGETHER,), now), picked + [""] * TOGETHER).float()
        positive, negative = both.chunk(2)
        x = x + (negative + GUIDANCE * (positive - negative)) * (then - now)
        path.append(x)
    return torch.stack(path[::FINER], 1), picked


def train(net: Net, paths: Tensor, captions: list[str], steps: int) -> Learner:
    """Train on these paths and print the error at each level; a batch has as many pictures from each of them."""
    learner, errors = Learner(net, RATE, decay=0.995), torch.full((LEVELS,), torch.nan)
    levels, start = torch.tensor(levels_of(LEVELS, net.settings["side"])), time.perf_counter()
    level = torch.arange(BATCH) % LEVELS
    length = (levels[level + 1] - levels[level]).view(-1, 1, 1, 1)
    for step in range(steps):
        rows = torch.randint(len(paths), (BATCH,))
        x, then = paths[rows, level], paths[rows, level + 1]
        with torch.autocast("cpu", torch.bfloat16):
            predicted = net(x, levels[level], [captions[row] for row in rows.tolist()])
        error = (predicted.float() - (then - x) / length).square().flatten(1).mean(1)
        learner.learn(error.mean(), step / steps)
        for place, found in zip(level.tolist(), error.detach(), strict=True):
            errors[place] = found if errors[place].isnan() else errors[place].lerp(found, 0.02)
        if learner.steps % 25 == 0:
            each = " ".join(f"{value:.4f}" for value in errors.tolist())
            print(f"step {learner.steps:5d}  {time.perf_counter() - start:5.0f} s  {each}", flush=True)
    return learner


def main() -> None:
    """Draw paths, train on them, and write the averaged weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True, help="weights of an image transformer")
    parser.add_argument("--out", type=Path, required=True, help="file for the student's weights")
    parser.add_argument("--paths", type=int, default=352, help="of the teacher")
    parser.add_argument("--steps", type=int, default=183, help="of training")
    options = parser.parse_args()
    torch.manual_seed(0)
    net, found = trained("icons-lumina", options.teacher, torch.device("cpu")), list[tuple[Tensor, list[str]]]()
    net.compile_blocks()
    for number in range(-(-options.paths // TOGETHER)):
        found.append(drawn(net, number))
        print(f"{len(found) * TOGETHER} paths", flush=True)
    paths, captions = torch.cat([path for path, _ in found]), [caption for _, some in found for caption in some]
    learner = train(net, paths, captions, options.steps)
    facts = {"side": net.settings["side"], "steps": learner.steps, "names": json.dumps(icon_data.combinations()[0])}
    facts["distilled"] = f"{LEVELS} steps, guidance {GUIDANCE:g} inside"
    net.save(options.out, learner.average, facts)


if __name__ == "__main__":
    main()
