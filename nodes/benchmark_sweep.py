"""The node Benchmark Sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.errors import require_text
from ..core.phrases import phrase
from ..optimizers.hosts.comfyui.paths import user_folder
from ..optimizers.hosts.comfyui.protocols import VAE, Conditioning, Latent, ModelPatcher
from ..server.built_in_presets import BUILT_IN
from ..server.sweep_view import SweepView
from ..server.sweeps import bench_for, plain, read_axes
from ..workbench.comfyui.comparison import ComparisonSettings
from ..workbench.comfyui.links import require_decoder
from ..workbench.comfyui.output_files import OutputFiles
from ..workbench.comfyui.sampling import SamplingJob
from ..workbench.comfyui.sweeping.run import Finished, run_sweep, upstream
from ..workbench.recipe import require_preset_name
from ..workbench.sweep.axes import describe_cell
from ..workbench.sweep.storage import storage_named
from ..workbench.sweep.study import SweepPlan
from . import NODES
from .common import PacelineNode
from .measuring import (
    image_output,
    most_runs_input,
    prompts_in,
    prompts_input,
    sampling_inputs,
    save_files_input,
    workflow_of,
)

_GRID = """# name: value, value, ...   size and batch belong to the picture
ApplyToMe.preset: quality, balanced, fast
"""
_CONNECTED = ("model", "vae", "positive", "negative", "latent_image")


class PacelineBenchmarkSweep(PacelineNode):
    """Try out many settings and keep the best."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineBenchmarkSweep",
            display_name="Benchmark Sweep",
            description=(
                "Measures settings of the Paceline nodes against the plain model, plots speed against difference, "
                "and saves the best as a preset of Optimize (Preset). You can stop it at any time: the next run "
                "continues."
            ),
            search_aliases=["grid search", "tune", "optuna", "pareto", "benchmark", "hyperparameter"],
            inputs=[
                io.Model.Input("model", tooltip="The plain model, as it comes from its loader (and LoRAs)."),
                io.Conditioning.Input("positive", tooltip="As in the KSampler."),
                io.Conditioning.Input("negative", tooltip="As in the KSampler."),
                io.Latent.Input(
                    "latent_image", tooltip="As in the KSampler. Cells with their own size or batch change it."
                ),
                io.Vae.Input(
                    "vae",
                    optional=True,
                    tooltip="Decodes the images that are compared. Without it, rough previews of the latents are "
                    "compared.",
                ),
                io.String.Input(
                    "grid",
                    default=_GRID,
                    multiline=True,
                    tooltip="What to try, one setting in each line: Node.input: value, value; Node: on, off; size: "
                    "512, 768x1024; batch: 1, 4. Each line multiplies the work.",
                ),
                io.Combo.Input(
                    "search",
                    options=["grid", "optuna"],
                    default="grid",
                    tooltip="grid: every combination once. optuna: a search that learns which settings are worth "
                    "trying; lines may hold ranges (0.2 .. 0.8).",
                ),
                io.Int.Input(
                    "trials",
                    default=20,
                    min=1,
                    max=10000,
                    tooltip="How many combinations optuna tries. Not used by grid.",
                ),
                io.String.Input(
                    "study",
                    default="my settings",
                    tooltip="Name of the results and of the preset. A run with the same name continues an earlier one.",
                ),
                io.Float.Input(
                    "largest_difference",
                    default=0.25,
                    min=0.0,
                    max=10.0,
                    step=0.01,
                    tooltip="The preset is the fastest setting whose image differs by at most this share of what "
                    "another seed changes. 0: only an identical image.",
                ),
                *sampling_inputs(
                    seed="Seed of the first round of all cells. Each further round draws from the next one.",
                    runs="Timed runs of each side in each cell, each from another seed. More take longer and make "
                    "speed-ups and differences surer.",
                ),
                io.String.Input(
                    "storage",
                    default="",
                    advanced=True,
                    tooltip="Empty: a file in ComfyUI's user folder. Otherwise the name, not the URL, of a database in "
                    "user/__paceline/storages.json, which lets several machines share one study.",
                ),
                io.String.Input(
                    "filename_prefix",
                    default="paceline/sweep",
                    advanced=True,
                    tooltip="Folder and name in ComfyUI's output folder for plot, tables and numbers. Used only with "
                    "save_files.",
                ),
                save_files_input(),
                prompts_input(),
                most_runs_input(),
            ],
            outputs=[
                io.Image.Output(display_name="plot"),
                io.String.Output(display_name="table"),
                io.String.Output(display_name="summary"),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )

    @classmethod
    def execute(
        cls,
        model: ModelPatcher,
        positive: Conditioning,
        negative: Conditioning,
        latent_image: Latent,
        grid: str,
        study: str,
        vae: VAE | None = None,
        search: str = "grid",
        trials: int = 20,
        largest_difference: float = 0.25,
        runs: int = 3,
        warmup_runs: int = 1,
        storage: str = "",
        filename_prefix: str = "paceline/sweep",
        save_files: bool = True,
        prompts: Mapping[str, Conditioning] | None = None,
        most_runs: int = 0,
        **sampler: Any,
    ) -> io.NodeOutput:
        prompt = getattr(cls.hidden, "prompt", None)
        require_decoder("vae", vae)
        axes = read_axes(require_text("grid", grid), NODES)
        mode = {"optuna": "search"}.get(search, search)
        plan = SweepPlan(
            require_preset_name("study", require_text("study", study).strip(), BUILT_IN),
            storage_named(storage, user_folder()),
            mode,
            trials,
            largest_difference,
        )
        output = OutputFiles(filename_prefix, save_files)
        job = SamplingJob(positive, negative, latent_image, further=prompts_in(prompts), **sampler)
        model, vae, removed = plain(model, vae)
        bench = bench_for(NODES, model, vae, job, ComparisonSettings(runs, warmup_runs, most_runs=most_runs))

        def say(text: str) -> None:
            cls.announce(Summary("working", text))

        further = tuple(f"prompts.{name}" for name in prompts or {})
        source = upstream(prompt, getattr(cls.hidden, "unique_id", None), _CONNECTED + further)
        view = SweepView(cls.node_id(), plan.study, largest_difference, bench)
        bench = replace(bench, seen=view.compared)
        try:
            found = run_sweep(bench, axes, plan, source, output, say, workflow_of(cls), view.watch)
        except BaseException:  # cancelling is one that is no Exception
            if view.total:  # else it was refused before anything was begun
                view.stop()
                kept = phrase("{done} of {total} cells kept: run it again to go on", done=view.done, total=view.total)
                cls.announce(Summary("partly", kept))
            raise
        cls.announce(_summary(found, removed))
        view.stop(None if found.preset is None else found.preset.stem)
        text = "\n\n".join([*removed, found.text, found.table])
        payload = {"images": [found.files["plot"]], "text": [text], "paceline_sweep": [view.payload()]}
        return io.NodeOutput(image_output(found.picture), found.table, found.text, ui=payload)


def _summary(found: Finished, removed: tuple[str, ...]) -> Summary:
    counts = {"cells": len(found.results), **Counter(result.state for result in found.results)}
    details = (*removed, *found.text.splitlines())
    if found.best is None:
        none = phrase("no setting is certainly faster within the allowed difference")
        return Summary("partly" if found.results else "inactive", none, counts, details)
    headline = phrase(
        "{speedup:.2f}x with {cell}", speedup=found.best.speedup or 0.0, cell=describe_cell(found.best.cell)
    )
    return Summary("active", headline, counts, details)
