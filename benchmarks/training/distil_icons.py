"""Distil an image transformer of the icons to few steps, with the guidance inside: progressive distillation.

    python benchmarks/training/distil_icons.py draw --teacher WEIGHTS --work FOLDER        # in one process
    python benchmarks/training/distil_icons.py train --teacher WEIGHTS --work FOLDER --out FILE # in another, as long

``draw`` writes where the teacher passes the levels of a schedule of few steps, from noise to picture: Euler, guided, in
finer steps. ``train`` starts from the teacher and learns to go from each of these levels to the next one in one step
without guidance: the last round of arXiv 2202.00512, with guidance as in 2210.03142. It waits for the first paths and
takes new ones as they come. The captions are those of training, and each path has a seed of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from argparse import Namespace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import icon_data  # noqa: E402
from icon_learning import Learner  # noqa: E402
from icon_nets import as_of, trained  # noqa: E402

TOGETHER = 8
"""Paths that are drawn at once, and written as one file."""
FIRST = 16
"""Files that training starts with."""
FINER, GUIDANCE = 2, 3.0
"""Of the teacher: its steps in each of the student's, and its guidance."""
BATCH, RATE, SAVED_EVERY = 16, 1e-3, 240.0


def parse() -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("what", choices=("draw", "train"))
    add("--teacher", type=Path, required=True, help="weights of an image transformer")
    add("--work", type=Path, required=True, help="folder of the paths")
    add("--out", type=Path, help="file for the student's weights")
    add("--init", type=Path, help="start from these weights instead of the teacher's")
    add("--levels", type=int, default=8, help="steps that the student takes")
    add("--seconds", type=float, default=3600.0, help="time to draw or train for")
    return parser.parse_args()


def levels_of(steps: int, side: int) -> list[float]:
    """Return the noise levels of ComfyUI's ``simple``, with the model's own shift, the last one, 0, included."""
    return as_of(torch.linspace(1, 0, steps + 1, dtype=torch.float64), side / 32).tolist()


@torch.no_grad()
def draw(args: Namespace) -> None:
    """Write paths, ``[TOGETHER, levels + 1, 4, side, side]`` in half precision, with their captions."""
    net = trained("icons-lumina", args.teacher, torch.device("cpu"))
    net.compile_blocks()
    side, captions = net.settings["side"], icon_data.combinations()[0]
    levels = levels_of(args.levels * FINER, side)
    args.work.mkdir(parents=True, exist_ok=True)
    start, number = time.perf_counter(), len(list(args.work.glob("*.safetensors")))
    while time.perf_counter() - start < args.seconds:
        random = torch.Generator().manual_seed(1_000_000 + number)
        picked = [captions[place] for place in torch.randint(len(captions), (TOGETHER,), generator=random).tolist()]
        x = torch.randn(TOGETHER, 4, side, side, generator=random)
        path = [x]
        for place, (now, then) in enumerate(zip(levels[:-1], levels[1:], strict=True), 1):
            with torch.autocast("cpu", torch.bfloat16):
                both = net(torch.cat([x, x]), torch.full((2 * TOGETHER,), now), picked + [""] * TOGETHER).float()
            positive, negative = both.chunk(2)
            x = x + (negative + GUIDANCE * (positive - negative)) * (then - now)
            if place % FINER == 0:
                path.append(x)
        partial = args.work / f"{number:05d}.partial"
        save_file({"path": torch.stack(path, 1).half()}, partial, {"captions": json.dumps(picked)})
        partial.replace(partial.with_suffix(".safetensors"))  # the other process never sees half a file
        number += 1
        print(f"{number * TOGETHER} paths, {time.perf_counter() - start:.0f} s", flush=True)


class Paths:
    """Those that have been drawn; a batch has as many from each level."""

    def __init__(self, folder: Path, levels: list[float]) -> None:
        self.folder, self.levels = folder, torch.tensor(levels)
        self.files: set[Path] = set()
        self.captions: list[str] = []
        self.paths = torch.empty(0)
        while len(self.files) < FIRST:
            self.read()
            time.sleep(1)

    def read(self) -> None:
        """Add what has been drawn since."""
        for path in sorted(set(self.folder.glob("*.safetensors")) - self.files):
            with safe_open(path, "pt") as file:
                self.captions += json.loads(file.metadata()["captions"])
                drawn = file.get_tensor("path")
            self.paths = torch.cat([self.paths, drawn]) if self.files else drawn
            self.files.add(path)

    def batch(self, count: int) -> tuple[Tensor, Tensor, Tensor, list[str], Tensor]:
        """Return numbers of levels, states, noise levels, captions, and the velocity to the next level."""
        rows = torch.randint(len(self.paths), (count,))
        level = torch.arange(count) % (len(self.levels) - 1)
        x, then = self.paths[rows, level].float(), self.paths[rows, level + 1].float()
        length = self.levels[level + 1] - self.levels[level]
        captions = [self.captions[row] for row in rows.tolist()]
        return level, x, self.levels[level], captions, (then - x) / length.view(-1, 1, 1, 1)


def train(args: Namespace) -> None:
    """Train, print the error at each level, and write the averaged weights."""
    net = trained("icons-lumina", args.teacher, torch.device("cpu"), args.init)
    net.compile_blocks()
    torch.manual_seed(len(list(args.work.glob("*.safetensors"))))
    paths = Paths(args.work, levels_of(args.levels, net.settings["side"]))
    learner, errors = Learner(net, RATE, decay=0.995), torch.full((args.levels,), torch.nan)

    def publish() -> None:
        facts = {"side": net.settings["side"], "steps": learner.steps, "names": json.dumps(icon_data.combinations()[0])}
        facts["distilled"] = f"{args.levels} steps, guidance {GUIDANCE:g} inside"
        net.save(args.out, learner.average, facts)

    start = saved = time.perf_counter()
    while (progress := (time.perf_counter() - start) / args.seconds) < 1.0:
        level, x, sigma, captions, wanted = paths.batch(BATCH)
        with torch.autocast("cpu", torch.bfloat16):
            predicted = net(x, sigma, captions)
        error = (predicted.float() - wanted).square().flatten(1).mean(1)
        learner.learn(error.mean(), progress)
        for place, found in zip(level.tolist(), error.detach(), strict=True):
            errors[place] = found if errors[place].isnan() else errors[place].lerp(found, 0.02)
        if learner.steps % 25 == 0:
            paths.read()
            each, took = " ".join(f"{value:.4f}" for value in errors.tolist()), time.perf_counter() - start
            print(f"step {learner.steps:5d}  {took:5.0f} s  {len(paths.paths)} paths  {each}", flush=True)
        if time.perf_counter() - saved > SAVED_EVERY:
            publish()
            saved = time.perf_counter()
    publish()


if __name__ == "__main__":
    given = parse()
    (draw if given.what == "draw" else train)(given)
