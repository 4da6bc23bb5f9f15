"""The node Benchmark Sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_api.latest import io

from ..measure.measure import MeasurePlan
from ..optimizers.core.errors import require_text
from ..optimizers.in_comfyui.structure.protocols import VAE, Conditioning, ModelPatcher
from ..optimizers.in_comfyui.structure.user_folder import user_folder
from ..service.apply_recipe import BUILT_IN
from ..service.comfyui.links import require_decoder
from ..service.comfyui.sampling_job import SamplingJob
from ..service.recipe import require_preset_name
from ..service.sweep.run_sweep import Bench, digest_upstream, plain, read_axes, run_sweep, summary_of, sweep_payload
from ..service.sweep.study import SweepPlan, to_markdown
from . import NODES
from .common import ADVANCED, PacelineNode
from .compare_models import drawn_inputs, most_runs_input, prompts_in, prompts_input, sampling_inputs

_GRID = """# setting = value, value, ...
Apply ToMe.preset = custom, quality
"""
_CONNECTED = ("model", "vae", "positive", "negative", "latent_image")


class PacelineBenchmarkSweep(PacelineNode):
    """Try out many settings and keep the best."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Benchmark Sweep",
            "Measures settings of the Paceline nodes against the plain model and saves the best as a preset of "
            "Optimize (Preset). You can stop it at any time: the next run continues.",
            "grid search, tune, optuna, pareto, benchmark, hyperparameter",
            category=ADVANCED,
            inputs=[
                io.Model.Input("model", tooltip="The plain model, as it comes from its loader (and LoRAs)."),
                *drawn_inputs(latent="As in the KSampler."),
                io.String.Input(
                    "grid",
                    default=_GRID,
                    multiline=True,
                    tooltip="The settings to try, one in each line: Apply ToMe.ratio = 0.3, 0.5; Compile UNet = on, "
                    "off. Each line multiplies the work.",
                ),
                io.Int.Input(
                    "trials",
                    default=0,
                    min=0,
                    max=10000,
                    advanced=True,
                    tooltip="0: every combination once. Otherwise Optuna chooses that many, by the results so far.",
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
                    tooltip="The preset is the fastest setting whose image differs by at most this share of a "
                    "seed change (the difference of two seeds). 0: only an identical image.",
                ),
                *sampling_inputs(
                    seed="Seed of the first round of all cells. Each further round draws from the next one.",
                    runs="Timed runs of each side in each cell, each from another seed. More runs take longer "
                    "and make speed-ups and differences surer.",
                ),
                prompts_input(),
                most_runs_input(),
            ],
            outputs=[io.String.Output(display_name="table"), io.String.Output(display_name="summary")],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt],
            is_output_node=True,
        )

    @classmethod
    def execute(
        cls,
        model: ModelPatcher,
        grid: str,
        study: str,
        vae: VAE | None = None,
        trials: int = 0,
        largest_difference: float = 0.25,
        runs: int = 3,
        prompts: Mapping[str, Conditioning] | None = None,
        most_runs: int = 0,
        **drawn: Any,
    ) -> io.NodeOutput:
        require_decoder("vae", vae)
        axes = read_axes(require_text("grid", grid), NODES)
        name = require_preset_name("study", require_text("study", study).strip(), BUILT_IN)
        plan = SweepPlan(name, user_folder("sweeps", "sweeps.db"), trials, largest_difference)
        job = SamplingJob(further=prompts_in(prompts), **drawn)
        model, vae, removed = plain(model, vae)
        bench = Bench(NODES, model, vae, job, MeasurePlan(job.steps, runs, most_runs, job.prompts))
        connected = (*_CONNECTED, *(f"prompts.{name}" for name in prompts or {}))
        source = digest_upstream(getattr(cls.hidden, "prompt", None), getattr(cls.hidden, "unique_id", None), connected)
        results, best = run_sweep(bench, axes, plan, source, cls.announce, cls.node_id())
        summary = summary_of(results, best, plan, removed)
        cls.announce(summary)
        table, text = to_markdown(results, best), "\n".join(summary.details)
        payload = {
            "text": [f"{text}\n\n{table}"],
            "paceline_sweep": [sweep_payload(plan, results, len(results), name if best else None)],
        }
        return io.NodeOutput(table, text, ui=payload)
