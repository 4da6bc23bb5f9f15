r"""Train the small diffusion models that benchmarks and the demo sample with: on icons, drawn anew for every batch.

A UNet with v-prediction on Stable Diffusion 1.5's noise schedule, 4.3 million parameters at 32 x 32, on two CPU cores:
    python benchmarks/training/train_icons.py
From these weights at 64 x 64:
    python benchmarks/training/train_icons.py --size 64 --init icons32.safetensors --lr 1e-3 --precision bf16
An image transformer of today's form by flow matching, first 6.4 million parameters and 64 tokens; core: Lumina 2:
    python benchmarks/training/train_icons.py --geometry icons-lumina --size 16 --blocks 4 \
        --out icons16_lumina.safetensors --precision bf16 --compile
From these weights 10.7 million and 256 tokens, with a UNet as teacher, then 1,024 with --size 64:
    python benchmarks/training/train_icons.py --geometry icons-lumina --size 32 --init icons16_lumina.safetensors \
        --batch 32 --lr 2e-3 --precision bf16 --compile --teacher benchmarks/weights/icons32.safetensors
A video transformer, 3.9 million parameters, 2,048 tokens, on moving icons, first on their frames; core: Wan 2.1:
    python benchmarks/training/train_icons.py --geometry icons-video --batch 384 --compile
The last two need a graphics card, or days; benchmarks/on_gpu.sh --train trains all four transformers there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
import icon_data  # noqa: E402
import icon_learning  # noqa: E402
import icon_motion  # noqa: E402
from comfy_host.paths import cache_dir  # noqa: E402
from icon_nets import KINDS, Net  # noqa: E402

GEOMETRIES: dict[str, dict[str, float]] = {
    "icons": {"size": 32, "batch": 16, "lr": 1.5e-3, "seconds": 5400},
    "icons-lumina": {"size": 64, "channels": 256, "blocks": 8, "heads": 8, "batch": 48, "lr": 3e-3, "seconds": 3600},
    "icons-video": {"size": 32, "channels": 192, "blocks": 6, "heads": 6, "batch": 48, "lr": 2e-3, "seconds": 3600},
}
"""What every setting is that the command line leaves out."""

PURE_NOISE = 0.03  # share of the examples without any picture in them
STILLS_UNTIL = 0.3  # share of a video model's run in which it sees single frames: shapes and colours, for an eighth


def parse() -> argparse.Namespace:
    """Read the command line; what it leaves out is the geometry's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--geometry", default="icons", choices=tuple(GEOMETRIES), help="defaults of what follows")
    add("--seconds", type=float, help="time to train for")
    add("--steps", type=int, default=0, help="train for this many steps instead of --seconds")
    add("--size", type=int, choices=(16, 32, 64))
    for name in ("channels", "blocks", "heads"):
        add(f"--{name}", type=int, help="of a transformer")
    add("--batch", type=int, help="pictures, or frames, in a step")
    add("--lr", type=float)
    add("--out", type=Path, help="file for the weights; a checkpoint is beside it")
    add("--init", type=Path, help="start from the weights in this file instead of random ones")
    add("--teacher", type=Path, help="weights of a UNet of that size, for an image transformer to learn from")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--save-every", type=float, default=240.0, help="seconds between checkpoints")
    add("--precision", choices=("fp32", "bf16"), help="bf16 on a GPU if not given")
    add("--compile", action="store_true", help="compile the blocks of a transformer")
    found = parser.parse_args()
    for name, value in GEOMETRIES[found.geometry].items():
        if getattr(found, name) is None:
            setattr(found, name, value)
    if found.teacher and found.geometry != "icons-lumina":
        parser.error(f"--teacher is for an image transformer, --geometry icons-lumina, and not for {found.geometry}.")
    found.out = found.out or cache_dir() / found.geometry / f"{found.geometry}.safetensors"
    return found


class Examples:
    """Noisy pictures with what is to be predicted: v, or with flow matching noise - picture."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.video, self.flow, self._args = args.geometry == "icons-video", args.geometry != "icons", args
        kind = icon_motion.Motions if self.video else icon_data.Icons
        self.source: icon_data.Icons = kind(cache_dir() / "icons", args.size, device)
        self.teacher = icon_learning.Teacher(args.teacher, device) if args.teacher else None
        if self.flow:
            self._stronger = icon_motion.STRONGER if self.video else args.size / 32
        else:
            sigmas = icon_learning.discrete_sigmas()
            self._alpha = (1.0 / (sigmas.double() ** 2 + 1.0)).sqrt().float().to(device)  # [1000], share of signal
            self._levels = icon_learning.levels_for(args.size, sigmas).to(device)

    def batch(self, progress: float) -> tuple[Tensor, Tensor, list[str], Tensor, Tensor]:
        """Return noisy pictures, noise levels, captions, what is to be predicted, and how much each error counts."""
        count = int(self._args.batch)
        if self.video:
            frames = 1 if progress < STILLS_UNTIL else icon_motion.FRAMES
            clean, captions = self.source.batch(count // frames, frames=frames)
        else:
            clean, captions = self.source.batch(count)
        count, each, on = len(clean), (-1, *[1] * (clean.ndim - 1)), {"device": clean.device}
        # One noise level from each of `count` equal strata: less variance in the gradient for the same work.
        level = (torch.arange(count, **on) + torch.rand(count, **on)) / count
        # Samplers start from pure noise, but the UNet's last level still has a trace of the picture: a model that has
        # seen only that reads mean colours from noise. So it sees pure noise there as well.
        pure = torch.rand(count, **on) < PURE_NOISE
        if self.flow:
            level = icon_learning.flow_levels(level, self._stronger)
            level = torch.where(pure, 1.0, self.teacher.nearest(level) if self.teacher else level)
            a = 1.0 - level.view(each)
        else:
            level = self._levels[(level * 1000).long().clamp_max(999)]
            level = torch.where(pure, 999, level)
            a = torch.where(pure.view(each), 0.0, self._alpha[level].view(each))
        s = 1.0 - a if self.flow else (1.0 - a**2).sqrt()
        noise = torch.randn_like(clean)
        captions = ["" if chance < 0.1 else text for chance, text in zip(torch.rand(count), captions, strict=True)]
        noisy = a * clean + s * noise
        noisy = noisy if self.video else noisy.contiguous(memory_format=torch.channels_last)
        if not self.flow:
            counts = icon_learning.loss_weight(a, s, self._args.size, progress)
            return noisy, level, captions, a * noise - s * clean, counts
        return noisy, level, captions, noise - clean, torch.ones(count, **on)


def main() -> None:
    """Train; checkpoints and averaged weights are written on the way."""
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    in_half = args.precision == "bf16" or (args.precision is None and device.type == "cuda")
    torch.manual_seed(0)
    captions = icon_motion.combinations()[0] if args.geometry == "icons-video" else icon_data.combinations()[0]
    net = Net(args.geometry, KINDS[args.geometry][1](args), icon_data.vocabulary(captions), device)
    examples = Examples(args, device)
    if args.init:
        net.warm_start(args.init)
    net = net.to(device, memory_format=torch.preserve_format if examples.video else torch.channels_last)
    if args.compile and examples.flow:
        net.compile_blocks()
    learner, spent, smooth = icon_learning.Learner(net, args.lr, decay=0.998), 0.0, math.nan
    size = sum(parameter.numel() for parameter in learner.parameters)
    print(f"{size:,} parameters on {device}, {len(captions)} captions", flush=True)
    checkpoint = args.out.with_suffix(".pt")
    if args.resume and checkpoint.is_file():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        net.load_state_dict(state["net"])
        for optimiser, saved in zip(learner.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        learner.average, learner.steps, spent, smooth = (state[name] for name in ("average", "step", "spent", "loss"))
    torch.manual_seed(learner.steps)

    def publish() -> None:
        state: dict[str, Any] = {"net": net.state_dict(), "optimisers": [o.state_dict() for o in learner.optimisers]}
        state |= {"average": learner.average, "step": learner.steps, "spent": spent, "loss": smooth}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, checkpoint)
        facts = {"side": args.size, "steps": learner.steps, "loss": f"{smooth:.5f}", "names": json.dumps(captions)}
        net.save(args.out, learner.average, facts)

    start = published = time.perf_counter()
    before, first = spent, learner.steps
    while (progress := learner.steps / args.steps if args.steps else spent / args.seconds) < 1.0:
        noisy, level, picked, wanted, counts = examples.batch(progress)
        with torch.autocast(device.type, torch.bfloat16, enabled=in_half):
            predicted = net(noisy, level, picked)
            if examples.teacher:
                wanted = examples.teacher.instead(wanted, noisy, level, picked)
        error = (predicted.float() - wanted).pow(2).flatten(1).mean(1)
        learner.learn((error * counts).mean(), progress)
        spent = before + time.perf_counter() - start
        if learner.steps % 10 == 0:  # reading a value waits for the GPU, so not at every step
            now = error.mean().item()
            smooth = now if math.isnan(smooth) else smooth + 0.1 * (now - smooth)
        if learner.steps % 50 == 0:
            rate = (time.perf_counter() - start) / (learner.steps - first)
            print(f"step {learner.steps:5d}  {spent:6.0f} s  MSE {smooth:.5f}  {rate:.2f} s a step", flush=True)
        if time.perf_counter() - published > args.save_every:
            publish()
            published = time.perf_counter()
    publish()
    print(f"finished: {learner.steps} steps, {spent:.0f} s, MSE {smooth:.5f}, {args.out}", flush=True)


if __name__ == "__main__":
    main()
