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
import math
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import icon_data  # noqa: E402
import icon_flow  # noqa: E402
import icon_lumina  # noqa: E402
import icon_net  # noqa: E402
import icon_words  # noqa: E402
from comfy_host.paths import cache_dir  # noqa: E402

TOGETHER = 8
"""Paths that are drawn at once, and written as one file."""

FIRST = 16
"""Files that training starts with."""


def parse() -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "train"))
    parser.add_argument("--teacher", type=Path, required=True, help="weights of an image transformer")
    parser.add_argument("--work", type=Path, required=True, help="folder of the paths")
    parser.add_argument("--out", type=Path, help="file for the student's weights")
    parser.add_argument("--init", type=Path, help="start from these weights instead of the teacher's")
    parser.add_argument("--levels", type=int, default=8, help="steps that the student takes")
    parser.add_argument("--finer", type=int, default=2, help="steps of the teacher in each of these")
    parser.add_argument("--guidance", type=float, default=3.0, help="of the teacher")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time to draw or train for")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--save-every", type=float, default=240.0, help="seconds between checkpoints")
    return parser.parse_args()


def load(path: Path, teacher: Path) -> tuple[icon_lumina.Net, dict[str, int], dict[str, Any]]:
    """Return a network with weights, the rows of its words, and its settings, which are the teacher's."""
    with safe_open(teacher, "pt") as file:
        facts = file.metadata()
    found, words = json.loads(facts["config"]), json.loads(facts["vocabulary"])
    asked = Namespace(channels=found["dim"], heads=found["n_heads"], context=found["cap_feat_dim"])
    asked.mult, asked.size = str(found["n_layers"]), found["side"]
    unet, settings = icon_lumina.build(asked, torch.device("cpu"))
    net = icon_lumina.Net(unet, len(words), asked.context)
    icon_net.warm_start(net, path, words)
    for block in unet.layers:
        block.forward = torch.compile(block.forward, dynamic=False)
    return net.to(memory_format=torch.channels_last), words, settings


def levels_of(steps: int, side: int) -> list[float]:
    """Return the noise levels of ComfyUI's ``simple``, with the model's own shift, the last one, 0, included."""
    return icon_flow.as_of(torch.linspace(1, 0, steps + 1, dtype=torch.float64), side / 32).tolist()


@torch.no_grad()
def draw(args: Namespace) -> None:
    """Write paths, ``[TOGETHER, levels + 1, 4, side, side]`` in half precision, with the captions' words."""
    net, words, settings = load(args.teacher, args.teacher)
    side, captions = settings["side"], icon_data.combinations()[0]
    levels = levels_of(args.levels * args.finer, side)
    null = torch.tensor([icon_words.tokenize("", words)] * TOGETHER)
    args.work.mkdir(parents=True, exist_ok=True)
    start, number = time.perf_counter(), len(list(args.work.glob("*.safetensors")))
    while time.perf_counter() - start < args.seconds:
        random = torch.Generator().manual_seed(1_000_000 + number)
        picked = torch.randint(len(captions), (TOGETHER,), generator=random).tolist()
        ids = torch.tensor([icon_words.tokenize(captions[place], words) for place in picked])
        x = torch.randn(TOGETHER, 4, side, side, generator=random)
        path = [x]
        for place, (now, then) in enumerate(zip(levels[:-1], levels[1:], strict=True), 1):
            with torch.autocast("cpu", torch.bfloat16):
                both = net(torch.cat([x, x]), torch.full((2 * TOGETHER,), now), torch.cat([ids, null])).float()
            positive, negative = both.chunk(2)
            x = x + (negative + args.guidance * (positive - negative)) * (then - now)
            if place % args.finer == 0:
                path.append(x)
        partial = args.work / f"{number:05d}.partial"
        save_file({"path": torch.stack(path, 1).half(), "ids": ids}, partial)
        partial.replace(partial.with_suffix(".safetensors"))  # the other process never sees half a file
        number += 1
        print(f"{number * TOGETHER} paths, {time.perf_counter() - start:.0f} s", flush=True)


class Paths:
    """Those that have been drawn; a batch has as many from each level."""

    def __init__(self, folder: Path, levels: list[float]) -> None:
        self.folder, self.levels = folder, torch.tensor(levels)
        self.files: set[Path] = set()
        self.kept: list[dict[str, Tensor]] = []
        while len(self.files) < FIRST:
            self.read()
            time.sleep(1)

    def read(self) -> None:
        """Add what has been drawn since."""
        new = sorted(set(self.folder.glob("*.safetensors")) - self.files)
        if new:
            self.kept += [load_file(file) for file in new]
            self.paths = torch.cat([part["path"] for part in self.kept])
            self.ids = torch.cat([part["ids"] for part in self.kept])
            self.files.update(new)

    def batch(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return numbers of levels, states, noise levels, words, and the velocity to the next level."""
        rows = torch.randint(len(self.paths), (count,))
        level = torch.arange(count) % (len(self.levels) - 1)
        x, then = self.paths[rows, level].float(), self.paths[rows, level + 1].float()
        length = self.levels[level + 1] - self.levels[level]
        return level, x, self.levels[level], self.ids[rows], (then - x) / length.view(-1, 1, 1, 1)


def train(args: Namespace) -> None:
    """Train, print the error at each level, and write the averaged weights."""
    net, words, settings = load(args.init or args.teacher, args.teacher)
    torch.manual_seed(len(list(args.work.glob("*.safetensors"))))
    paths = Paths(args.work, levels_of(args.levels, settings["side"]))
    parameters = list(net.parameters())
    average = [parameter.detach().clone() for parameter in parameters]
    optimisers = icon_net.optimisers(net, args.lr)
    source = icon_data.Icons(cache_dir() / "icons", settings["side"])

    def publish() -> None:
        live = [parameter.detach().clone() for parameter in parameters]
        facts = {
            "side": settings["side"], "steps": step, "prediction": "flow", "schedule": "flow",
            "distilled": f"{args.levels} steps, guidance {args.guidance:g} inside", "torch": torch.__version__,
        }  # fmt: skip
        with torch.no_grad():
            torch._foreach_copy_(parameters, average)
            icon_net.save(net, args.out, settings, source, words, facts)
            torch._foreach_copy_(parameters, live)

    errors = torch.full((args.levels,), math.nan)
    start = saved = time.perf_counter()
    step = 0
    while (progress := (time.perf_counter() - start) / args.seconds) < 1.0:
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = icon_net.learning_rate(progress, step, args.lr)
        level, x, sigma, ids, wanted = paths.batch(args.batch)
        with torch.autocast("cpu", torch.bfloat16):
            predicted = net(x, sigma, ids)
        error = (predicted.float() - wanted).square().flatten(1).mean(1)
        error.mean().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 1.0 - min(0.995, step / (step + 20)))
        for place, found in zip(level.tolist(), error.detach(), strict=True):
            errors[place] = found if errors[place].isnan() else errors[place].lerp(found, 0.02)
        step += 1
        if step % 25 == 0:
            paths.read()
            each = " ".join(f"{value:.4f}" for value in errors.tolist())
            print(f"step {step:5d}  {time.perf_counter() - start:5.0f} s  {len(paths.paths)} paths  {each}", flush=True)
        if time.perf_counter() - saved > args.save_every:
            publish()
            saved = time.perf_counter()
    publish()


def main() -> None:
    """Draw paths or train on them."""
    args = parse()
    (draw if args.what == "draw" else train)(args)


if __name__ == "__main__":
    main()
