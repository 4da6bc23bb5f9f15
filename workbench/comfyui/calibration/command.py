r"""``plan``: find a plan for Reuse Steps, on a few prompts of your own.

    python custom_nodes/ComfyUI-Paceline plan --checkpoint sd15.safetensors --prompt "a lighthouse at dusk" \
        --prompt "portrait of an old sailor" --budget 0.05 --sampler dpmpp_2m --scheduler karras --steps 20 --cfg 7

Each prompt is drawn three times or a few times more. The plan is written into ComfyUI's user folder, and printed: give
the input "plan" of Reuse Steps its name, or the text. What comes after -- goes to ComfyUI.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ....optimizers.step_reuse.plan import ROOM
from ..latents import empty_latent
from ..sampling import SamplingJob
from ..standalone import load_checkpoint, model_file, run_command, say
from .calibrate import calibrate
from .saved import save_plan


def main(arguments: Sequence[str], pack: Path) -> int:
    """Find a plan and return the exit status.

    Args:
        arguments: of the command line.
        pack: folder of this pack, as it was named.
    """
    return run_command(arguments, pack, _parser(), _run, "Stopped. Nothing was written.")


def _run(options: argparse.Namespace) -> None:
    path = model_file("checkpoints", options.checkpoint)
    say(f"loading {path}")
    model, encode, _ = load_checkpoint(path)
    jobs = [
        SamplingJob(
            encode(prompt),
            encode(options.negative),
            empty_latent(model, options.size),
            options.seed + number,
            options.steps,
            options.cfg,
            options.sampler,
            options.scheduler,
        )
        for number, prompt in enumerate(options.prompt)
    ]
    found = calibrate(model, jobs, options.budget, say)
    written = save_plan(options.name, found)
    print(
        f"\n{found.evaluations:g} of {found.plan.steps} evaluations of the network; the picture of the worst prompt "
        f"moves by {found.share:.1%} of what another seed changes (budget {found.plan.budget:.1%}).\n\n"
        f"{found.plan.to_json()}\n\n{written}\n\n"
        f"Give Reuse Steps a budget of {ROOM * found.plan.budget:g} or more: other prompts move farther, and with less "
        "the plan is not followed in full."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--checkpoint", required=True, help="a file, or its name in ComfyUI's checkpoints folder")
    add("--prompt", action="append", required=True, metavar="TEXT", help="may be repeated; four or more are better")
    add("--negative", default="", metavar="TEXT")
    add("--budget", type=float, default=0.05, metavar="SHARE", help="of what another seed changes (0.05)")
    add("--name", default="plan", help="of the plan (plan)")
    add("--size", type=int, default=512, metavar="N", help="sides of the picture in pixels (512)")
    add("--steps", type=int, default=20, metavar="N")
    add("--cfg", type=float, default=7.0, metavar="X")
    add("--sampler", default="dpmpp_2m", metavar="NAME")
    add("--scheduler", default="karras", metavar="NAME")
    add("--seed", type=int, default=0, metavar="N", help="of the first prompt; each further one has the next")
    add("--comfyui", metavar="FOLDER", help="ComfyUI's folder; default: COMFYUI_PATH, or where this pack is installed")
    return parser
