r"""``sweep``: Benchmark Sweep from the command line, without a server.

    python custom_nodes/ComfyUI-Paceline sweep --checkpoint sd15.safetensors --positive "a lighthouse at dusk" \
        --set "ApplyToMe.preset: quality, balanced, fast" --set "size: 512, 1024" --study lighthouse

After it was stopped or killed, the same command continues where it stopped. The same command with --storage and the URL
of a database server, on several machines with the same GPU, shares the work between them. What comes after -- goes to
ComfyUI.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import InvalidSetting
from ..optimizers.hosts.comfyui.paths import user_folder
from ..workbench.comfyui.comparison import ComparisonSettings
from ..workbench.comfyui.latents import empty_latent
from ..workbench.comfyui.output_files import OutputFiles, path_of
from ..workbench.comfyui.sampling import SamplingJob
from ..workbench.comfyui.standalone import (
    command_parser,
    exit_status,
    find_comfyui,
    load_checkpoint,
    model_file,
    read_arguments,
    say,
    start_comfyui,
)
from ..workbench.comfyui.sweeping.run import Finished, run_sweep
from ..workbench.recipe import require_preset_name
from ..workbench.sweep.storage import Storage, storage_named
from ..workbench.sweep.study import MODES, SweepPlan

if TYPE_CHECKING:
    from .recipes import Nodes


def main(arguments: Sequence[str], pack: Path, nodes: Callable[[], Nodes]) -> int:
    """Run a sweep and return the exit status.

    ``nodes`` imports our nodes, once ComfyUI can be imported; ``pack`` is our folder, as it was named.
    """
    options, comfyuis = read_arguments(_parser(), arguments)

    def run() -> None:
        start_comfyui(find_comfyui(options.comfyui, pack), comfyuis)
        import torch

        with torch.inference_mode():
            _show(_run(options, nodes()))

    return exit_status(run, "Stopped. The same command continues from here.")


def _run(options: argparse.Namespace, nodes: Nodes) -> Finished:
    from .built_in_presets import BUILT_IN
    from .sweeps import bench_for, read_axes

    axes = read_axes(_grid(options), nodes)
    path = model_file("checkpoints", options.checkpoint)
    plan = SweepPlan(
        require_preset_name("study", options.study, BUILT_IN),
        Storage("the database of --storage", options.storage) if options.storage else storage_named("", user_folder()),
        options.search,
        options.trials,
        options.largest_difference,
    )
    output = OutputFiles(options.prefix)
    say(f"loading {path}")
    model, encode, vae = load_checkpoint(path)
    job = SamplingJob(
        encode(options.positive),
        encode(options.negative),
        empty_latent(model, 512),
        options.seed,
        options.steps,
        options.cfg,
        options.sampler,
        options.scheduler,
    )
    settings = ComparisonSettings(options.runs, options.warmup_runs)
    usable = None if options.no_vae else vae
    source = f"{Path(path).name} ({Path(path).stat().st_size} bytes), {options.positive!r}, {options.negative!r}"
    source = f"{source}, VAE: {usable is not None}"
    return run_sweep(bench_for(nodes, model, usable, job, settings), axes, plan, source, output, say)


def _grid(options: argparse.Namespace) -> str:
    lines = list(options.set)
    if options.grid is not None:
        try:
            lines.insert(0, options.grid.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSetting(f"The grid {options.grid} cannot be read ({error}).", "Name a text file.") from None
    return "\n".join(lines)


def _show(found: Finished) -> None:
    print(f"\n{found.text}\n\n{found.table}")
    for entry in found.files.values():
        print(path_of(entry))
    if found.preset is not None:
        print(found.preset)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("sweep", __doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, help="a file, or its name in ComfyUI's checkpoints folder")
    add("--set", action="append", default=[], metavar="'NAME: VALUES'", help="one line of the grid; may be repeated")
    add("--grid", type=Path, metavar="FILE", help="the lines in a file")
    add("--study", required=True, help="name of the results and of the preset; an old name continues where it stopped")
    add("--storage", default="", metavar="URL", help="database to share; default: a file in ComfyUI's user folder")
    add("--search", choices=MODES, default="grid", help="grid: every cell; search: Optuna chooses --trials of them")
    add("--trials", type=int, default=20, metavar="N")
    add("--positive", default="", metavar="TEXT")
    add("--negative", default="", metavar="TEXT")
    add("--no-vae", action="store_true", help="compare rough previews of the latent instead of decoding")
    add("--steps", type=int, default=20, metavar="N")
    add("--cfg", type=float, default=7.0, metavar="X")
    add("--sampler", default="dpmpp_2m", metavar="NAME")
    add("--scheduler", default="karras", metavar="NAME")
    add("--seed", type=int, default=0, metavar="N")
    add("--runs", type=int, default=3, metavar="N", help="timed runs of each side in each cell (3)")
    add("--warmup-runs", type=int, default=1, metavar="N", help="runs of each side before (1)")
    add(
        "--largest-difference",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="of a seed change, for the preset (0.25)",
    )
    add("--prefix", default="paceline/sweep", metavar="NAME", help="of the files in ComfyUI's output folder")
    return parser
