r"""Train the small diffusion models that benchmarks and the demo sample with: on icons, drawn anew for every batch.

ComfyUI's own UNetModel on 4-channel pictures (see icon_words.py), conditioned through a learned table of words, with
v-prediction on Stable Diffusion 1.5's noise schedule; 4.3 million parameters at 32 x 32, on two CPU cores:
    python benchmarks/training/train_icons.py
From these weights at 64 x 64:
    python benchmarks/training/train_icons.py --size 64 --init icons32.safetensors --lr 1e-3 --precision bf16
An image transformer of today's form, first 6.4 million parameters and 64 tokens; core: Lumina 2:
    python benchmarks/training/train_icons.py --geometry icons-lumina --size 16 --mult 4 \
        --out icons16_lumina.safetensors --precision bf16 --processes 1 --compile
From these weights 10.7 million and 256 tokens, with a UNet as teacher, then 1,024 with --size 64:
    python benchmarks/training/train_icons.py --geometry icons-lumina --size 32 --init icons16_lumina.safetensors \
        --batch 32 --lr 2e-3 --precision bf16 --compile --teacher benchmarks/weights/icons32.safetensors
A video transformer, 3.9 million parameters, 2,048 tokens, on moving icons, first on their frames; core: Wan 2.1:
    python benchmarks/training/train_icons.py --geometry icons-video --batch 384 --compile
The last two need a graphics card, or days; benchmarks/on_gpu.sh --train trains all four transformers there.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import icon_data  # noqa: E402
import icon_flow  # noqa: E402
import icon_lumina  # noqa: E402
import icon_motion  # noqa: E402
import icon_net  # noqa: E402
import icon_teacher  # noqa: E402
import icon_wan  # noqa: E402
import icon_words  # noqa: E402
from comfy_host.paths import cache_dir  # noqa: E402

GEOMETRIES: dict[str, dict[str, Any]] = {
    "icons": {
        "size": 32, "channels": 32, "mult": "1,2,4", "context": 128, "heads": 0, "top": "input", "batch": 16,
        "lr": 1.5e-3, "seconds": 5400.0, "out": cache_dir() / "icons" / "icons.safetensors",
    },
    "icons-lumina": {
        "size": 64, "channels": 256, "mult": "8", "context": 128, "heads": 8, "top": "input", "batch": 48, "lr": 3e-3,
        "seconds": 3600.0, "out": cache_dir() / "icons_lumina" / "icons_lumina.safetensors",
    },
    "icons-video": {
        "size": 32, "channels": 192, "mult": "6", "context": 128, "heads": 6, "top": "input", "batch": 48, "lr": 2e-3,
        "seconds": 3600.0, "out": cache_dir() / "icons_video" / "icons_video.safetensors",
    },
}  # fmt: skip
"""What every setting is that the command line leaves out."""

PURE_NOISE = 0.03  # share of the examples without any picture in them
STILLS_UNTIL = 0.3  # share of a video model's run in which it sees single frames: shapes and colours, for an eighth


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; what it leaves out is the geometry's."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--geometry", default="icons", choices=tuple(GEOMETRIES), help="defaults of what follows")
    parser.add_argument("--seconds", type=float, help="time to train for")
    parser.add_argument("--steps", type=int, default=0, help="train for this many steps instead of --seconds")
    parser.add_argument("--size", type=int, choices=(16, 32, 64))
    parser.add_argument("--channels", type=int, help="model_channels, a multiple of 32")
    parser.add_argument("--mult", help="channel_mult, a value per level; of a transformer: its numbers of blocks")
    parser.add_argument("--context", type=int, help="width of the text embedding")
    parser.add_argument("--heads", type=int, help="attention heads; 0: one for every 32 channels")
    parser.add_argument("--top", choices=("both", "input"), help="which halves have attention at full resolution")
    parser.add_argument("--batch", type=int, help="pictures, or frames, in a step")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    # Processes instead of threads: they wait for each other once a step, threads in every operation. When other
    # programs wanted the same two cores, a step took 8 s with threads and 0.6 s with processes.
    parser.add_argument("--processes", type=int, default=2, help="on a CPU, one thread each (default 2)")
    parser.add_argument("--out", type=Path, help="file for the weights")
    parser.add_argument("--work", type=Path, help="data, checkpoint, grids")
    parser.add_argument("--init", type=Path, help="start from the weights in this file instead of random ones")
    parser.add_argument(
        "--teacher", type=Path, help="weights of a UNet of that size, for an image transformer to learn from"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --work")
    parser.add_argument("--save-every", type=float, default=240.0, help="seconds between checkpoints")
    parser.add_argument("--drawn", type=int, default=24, help="pictures in the last grid; those before have a quarter")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16"), help="auto: bf16 on a GPU")
    parser.add_argument("--compile", action="store_true", help="compile the blocks of icons-lumina and icons-video")
    found = parser.parse_args(arguments)
    for name, value in GEOMETRIES[found.geometry].items():
        if getattr(found, name) is None:
            setattr(found, name, value)
    if found.teacher and found.geometry != "icons-lumina":
        parser.error(f"--teacher is for an image transformer, --geometry icons-lumina, and not for {found.geometry}.")
    found.work = found.work or found.out.parent
    return found


def all_reduce(parameters: list[nn.Parameter], spent: float) -> float:
    """Average the gradients and the clock over all processes, so that they stay and stop in step."""
    bucket = torch.cat([parameter.grad.flatten() for parameter in parameters] + [torch.tensor([spent])])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    pieces = bucket[:-1].split([parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad.copy_(piece.view_as(parameter))
    return bucket[-1].item()


def train(rank: int, args: argparse.Namespace, world: int, store: str) -> None:
    """Train in this process, which is number `rank` of `world`; number 0 prints and saves."""
    device = torch.device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    batch = args.batch // world
    in_half = args.precision == "bf16" or (args.precision == "auto" and device.type == "cuda")
    half = partial(torch.autocast, device.type, torch.bfloat16, enabled=in_half)
    video = args.geometry == "icons-video"
    lumina = args.geometry == "icons-lumina"
    flow = video or lumina
    source: Any = (icon_motion.Motions if video else icon_data.Icons)(args.work, args.size, device)
    captions = source.captions
    words = icon_words.vocabulary(captions)

    def tokens(texts: list[str]) -> torch.Tensor:
        return torch.tensor([icon_words.tokenize(text, words) for text in texts], device=device)

    null = tokens([""])

    if flow:
        kind: Any = icon_wan if video else icon_lumina
        unet, settings = kind.build(args, device)
        net = kind.Net(unet, len(words), args.context)
        stronger = icon_motion.STRONGER if video else args.size / 32
        draw, top = partial(icon_flow.sample, frames=icon_motion.FRAMES * video, stronger=stronger), 1.0
    else:
        unet_class, operations, sigmas = icon_net.import_unet(device)
        alpha = (1.0 / (sigmas.double() ** 2 + 1.0)).sqrt().float().to(device)  # [1000], share of signal
        levels = icon_net.levels_for(args.size, sigmas).to(device)
        settings = icon_net.unet_settings(args)
        unet = unet_class(**settings, dtype=torch.float32, operations=operations)
        icon_net.initialise(unet)
        net = icon_net.Net(unet, len(words), args.context)
        draw, top = partial(icon_net.sample, alpha=alpha), len(alpha) - 1
    teacher = icon_teacher.Teacher(args.teacher, device) if args.teacher else None
    if args.init:
        icon_net.warm_start(net, args.init, words)
    net = net.to(device, memory_format=torch.preserve_format if video else torch.channels_last)
    for block in (net.unet.layers if lumina else net.unet.blocks) if args.compile else ():
        block.forward = torch.compile(block.forward, dynamic=False)
    parameters = list(net.parameters())
    average = [parameter.detach().clone() for parameter in parameters]
    optimisers = icon_net.optimisers(net, args.lr)
    if rank == 0:
        size = sum(parameter.numel() for parameter in parameters)
        print(f"{size:,} parameters on {device}, {len(captions)} captions", flush=True)

    step, first, spent, smooth = 0, 0, 0.0, math.nan
    checkpoint = args.work / f"train{args.size}.pt"
    if args.resume and checkpoint.is_file():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        net.load_state_dict(state["net"])
        if "optimisers" in state:
            for optimiser, saved in zip(optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(saved)
        average, step, spent, smooth = state["average"], state["step"], state["spent"], state["loss"]
        first = step

    torch.manual_seed(args.seed + 1000 * rank + step)  # every process draws its own batches

    def publish(last: bool) -> None:
        """Checkpoint, then the averaged weights and a grid drawn with them, of more captions at the end."""
        args.work.mkdir(parents=True, exist_ok=True)
        state = {"net": net.state_dict(), "optimisers": [o.state_dict() for o in optimisers], "average": average}
        torch.save(state | {"step": step, "spent": spent, "loss": smooth}, checkpoint)
        live = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            torch._foreach_copy_(parameters, average)
        facts = {
            "side": args.size,
            "steps": step,
            "loss": f"{smooth:.5f}",
            "seed": args.seed,
            "torch": torch.__version__,
        }
        facts |= {"prediction": "flow", "schedule": "flow"} if flow else {}
        icon_net.save(net, args.out, settings, source, words, facts)
        wanted = args.drawn if last else args.drawn // 4
        if wanted:
            with half(), torch.compiler.set_stance("force_eager"):
                shown = tokens(source.shown(wanted))
                drawn = draw(net, ids=shown, null=null, size=args.size, steps=20 if last else 12)
            icon_words.save_grid(drawn, args.work / f"grid{args.size}_{step:05d}.png")
        with torch.no_grad():
            torch._foreach_copy_(parameters, live)

    start = published = time.perf_counter()
    before = spent
    while True:
        progress = step / args.steps if args.steps else spent / args.seconds
        if progress >= 1.0:
            break
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = icon_net.learning_rate(progress, step, args.lr)
        if video:
            frames = 1 if progress < STILLS_UNTIL else icon_motion.FRAMES
            clean, picked = source.batch(batch // frames, frames=frames)
        else:
            clean, picked = source.batch(batch)
        clean = clean.to(device)
        count, each = len(clean), (-1, *[1] * (clean.ndim - 1))
        # One noise level from each of `count` equal strata: less variance in the gradient for the same work.
        level = (torch.arange(count, device=device) + torch.rand(count, device=device)) / count
        if flow:
            level = icon_flow.levels(level, stronger)
            level = teacher.nearest(level) if teacher else level
            a = 1.0 - level.view(each)
        else:
            level = levels[(level * len(alpha)).long().clamp_max(len(alpha) - 1)]
            a = alpha[level].view(each)
        # Samplers start from pure noise, but this schedule's last level still has a trace of the picture: a model that
        # has seen only that reads mean colours from noise. So it sees pure noise there as well.
        pure = torch.rand(count, device=device) < PURE_NOISE
        level = torch.where(pure, top, level)
        a = torch.where(pure.view(each), 0.0, a)
        s = 1.0 - a if flow else (1.0 - a**2).sqrt()
        noise = torch.randn_like(clean)
        picked = ["" if chance < 0.1 else text for chance, text in zip(torch.rand(count), picked, strict=True)]
        text = tokens(picked)
        noisy = a * clean + s * noise
        noisy = noisy if video else noisy.contiguous(memory_format=torch.channels_last)
        with half():
            predicted = net(noisy, level, text)
        wanted = noise - clean if flow else a * noise - s * clean
        if teacher:
            with half():
                taught = teacher.velocity(noisy, level, picked)
            wanted = torch.where(teacher.teaches(level).view(each), taught, wanted)
        error = (predicted.float() - wanted).pow(2).flatten(1).mean(1)
        loss = (error if flow else error * icon_net.loss_weight(a, s, args.size, progress)).mean()
        loss.backward()
        spent = before + time.perf_counter() - start
        if world > 1:
            spent = all_reduce(parameters, spent)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        decay = min(0.998, step / (step + 20))
        torch._foreach_lerp_(average, [parameter.detach() for parameter in parameters], 1.0 - decay)
        step += 1
        if step % 10 == 0:  # reading a value waits for the GPU, so not at every step
            now = error.mean().item()
            smooth = now if math.isnan(smooth) else smooth + 0.1 * (now - smooth)
        if rank == 0 and step % 50 == 0:
            rate = (time.perf_counter() - start) / (step - first)
            print(f"step {step:5d}  {spent:6.0f} s  v-MSE {smooth:.5f}  {rate:.2f} s a step", flush=True)
        if rank == 0 and time.perf_counter() - published > args.save_every:
            publish(last=False)
            published = time.perf_counter()
    if rank == 0:
        publish(last=True)
        print(f"finished: {step} steps, {spent:.0f} s, v-MSE {smooth:.5f}, {args.out}", flush=True)
    if world > 1:
        dist.destroy_process_group()


def main() -> None:
    """Train with as many processes as were asked for."""
    args = parse()
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    world = args.processes if args.device == "cpu" else 1
    icon_data.fetch(args.work)  # once, for all processes
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        if world == 1:
            train(0, args, world, store)
        else:
            torch.multiprocessing.spawn(train, (args, world, store), nprocs=world)


if __name__ == "__main__":
    main()
