"""The nodes Compare Models and Profile, and the inputs of all nodes that sample and measure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from comfy_api.latest import io

from ..measure.evidence import CONTROLS
from ..measure.measure import MeasurePlan
from ..measure.speedup import MOST_ROUNDS
from ..optimizers.core.activity import Summary
from ..optimizers.core.phrases import phrase
from ..optimizers.core.settings import LARGEST_SEED
from ..optimizers.in_comfyui.run.reporting import Payload
from ..optimizers.in_comfyui.structure.model_facts import require_model
from ..optimizers.in_comfyui.structure.protocols import VAE, Conditioning, ModelPatcher
from ..service.comfyui.compare import Side, compare
from ..service.comfyui.comparison_report import environment, measured_on, record, save
from ..service.comfyui.links import require_conditioning, require_decoder, wrong_link
from ..service.comfyui.output_files import OutputFiles
from ..service.comfyui.profiling import Profile, profile_job
from ..service.comfyui.sampling_job import SamplingJob, samplers_and_schedulers
from .common import PacelineNode

_PREFIX = "paceline/compare"
_COUNTS = ("speedup", "speedup_low", "speedup_high", "seed_share")
_SHOWN = (
    *("verdict", "state", "badge", "quality", "speedup", "speedup_low", "speedup_high", "speedup_of"),
    *("clear", "seconds"),
    *("difference", "noise_floor", *CONTROLS, "lines", "shown", "gains", "count", "seed_shares", "farthest"),
)
"""What the page is shown of a record: ``Comparison`` in web/js/measurements.d.ts, beside the files."""


class PacelineCompareModels(PacelineNode):
    """Measure what an optimization brings and what it costs."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Compare Models",
            "Samples with both models in turn, each round from another seed. Shows the speed-up and the memory "
            "of the optimized model, and how far its images are from the baseline's, on average and at worst.",
            "benchmark, profile, speed, quality, psnr, ssim, difference, measure",
            inputs=[
                io.Model.Input("model_baseline", tooltip="The model to compare with, as it comes from its loader."),
                io.Model.Input("model_optimized", tooltip="The same model after the nodes you want to judge."),
                *drawn_inputs(),
                *sampling_inputs(
                    seed="Seed of the first round of both sides. Each further round draws from the next one.",
                    runs="Timed runs of each side, each from another seed. More runs take longer and make the speed-up "
                    "and the worst image more certain. A single run cannot tell a gain from chance.",
                ),
                # Older workflows lack the input: the default True keeps their files.
                io.Boolean.Input(
                    "save_files",
                    default=False,
                    optional=True,
                    advanced=True,
                    tooltip="Keep pictures and numbers in ComfyUI's output folder. Off: they go to its temporary "
                    "folder, which ComfyUI empties when it starts.",
                ),
                io.Boolean.Input(
                    "fewer_steps",
                    default=True,
                    optional=True,
                    advanced=True,
                    tooltip="If the optimized model is faster and draws another image, also draw the baseline in the "
                    "same time: with fewer steps, and without some late noise levels. Shows whether that is as good.",
                ),
                io.Vae.Input(
                    "audio_vae",
                    optional=True,
                    tooltip="Decodes the sound of a video, or of a model of sound alone. Without it, the latents of "
                    "the sound are compared.",
                ),
                prompts_input(),
                most_runs_input(),
            ],
            outputs=[io.Image.Output(display_name="comparison"), io.String.Output(display_name="summary")],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )

    @classmethod
    def execute(
        cls,
        model_baseline: ModelPatcher,
        model_optimized: ModelPatcher,
        save_files: bool = True,
        runs: int = 3,
        fewer_steps: bool = True,
        vae: VAE | None = None,
        audio_vae: VAE | None = None,
        prompts: Mapping[str, Conditioning] | None = None,
        most_runs: int = 0,
        **drawn: Any,
    ) -> io.NodeOutput:
        require_decoder("vae", vae)
        require_decoder("audio_vae", audio_vae)
        job = SamplingJob(further=prompts_in(prompts), **drawn)
        controls = CONTROLS if fewer_steps else ()
        found = compare(
            Side(model_baseline, vae, audio_vae),
            Side(model_optimized, vae, audio_vae),
            job,
            MeasurePlan(job.steps, runs, most_runs, job.prompts, controls=controls),
            say=lambda text: cls.announce(Summary("working", text)),
        )
        output, numbers = OutputFiles(_PREFIX, save_files), record(found)
        # For others to read: what it was measured on, and not what is missing on this machine.
        told = [line for line in numbers["lines"] if line not in found.notes] + [measured_on(numbers)]
        sheet = found.sheet(told)
        hidden = cls.hidden
        workflow = {"prompt": hidden.prompt, **(hidden.extra_pnginfo or {})} if hidden and hidden.prompt else {}
        files = save(found, numbers, sheet, output, workflow)
        counts = {name: numbers[name] for name in _COUNTS if numbers[name] is not None}
        lines = found.verdict.text, *numbers["lines"]
        cls.announce(Summary(numbers["badge"], found.verdict.headline, counts, lines))
        payload = {
            "images": [files["comparison"]],
            "text": ["\n".join(lines)],
            "paceline_comparison": [{**{key: numbers[key] for key in _SHOWN}, "files": files}],
        }
        return io.NodeOutput(torch.from_numpy(np.array(sheet)).float()[None] / 255.0, "\n".join(lines), ui=payload)


_NAMES = {"norm_elementwise": "norms and elementwise", "gaps": "gaps (waiting for Python)"}
"""Parts of a step that are shown under another name."""


class PacelineProfile(PacelineNode):
    """Show where the time of a run goes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        sampling = sampling_inputs("As in the KSampler.", "")
        return cls.schema(
            "Profile",
            "Shows where the time of a run goes (loading, steps, decoding) and where the time of one step goes.",
            "profile, slow, speed, bottleneck, where the time goes, measure",
            inputs=[
                io.Model.Input("model", tooltip="The model to look at, with or without Paceline nodes before it."),
                *drawn_inputs(vae="Connect the VAE to time decoding too."),
                *(entry for entry in sampling if entry.id != "runs"),
            ],
            outputs=[io.String.Output(display_name="summary"), io.String.Output(display_name="json")],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, model: ModelPatcher, vae: VAE | None = None, **drawn: Any) -> io.NodeOutput:
        require_model(model)
        require_decoder("vae", vae)
        job = SamplingJob(**drawn)
        found = profile_job(model, vae, job, lambda text: cls.announce(Summary("working", text)))
        shown = shown_profile(found, environment(model))
        lines = profile_lines(found)
        cls.announce(Summary("active", lines[0], details=tuple(lines[1:])))
        summary = "\n".join(lines)
        numbers = json.dumps({**shown, "step": found.step}, indent=1)
        return io.NodeOutput(summary, numbers, ui={"text": [summary], "paceline_profile": [shown]})


def shown_profile(found: Profile, around: dict[str, Any]) -> Payload:
    """Return a profile as data: ``Profile`` in web/js/measurements.d.ts."""
    return {
        "loading": found.loading,
        "steps": list(found.steps),
        "decoding": found.decoding,
        "slices": found.slices,
        "weights": list(found.weights),
        "about": {name: str(around[name]) for name in ("model", "device", "torch", "comfyui")},
    }


def profile_lines(found: Profile) -> list[str]:
    """Return the profile as text, the largest part first."""
    parts = sorted(found.shares.items(), key=lambda part: -part[1])
    shares = [f"{_NAMES.get(name, name)} {share:.0%}" for name, share in parts if share >= 0.005]
    count = len(found.steps)
    times = [f"loading {found.loading:.3g} s", f"{count} step{'s' * (count != 1)} {sum(found.steps):.3g} s"]
    if found.decoding is not None:
        times.append(f"decoding {found.decoding:.3g} s")
    return [
        phrase("one step {seconds:.3g} s: {parts}", seconds=found.step, parts=", ".join(shares[:2])),
        ", ".join(times),
        f"one step: {', '.join(shares)}",
        *found.weights,
    ]


def drawn_inputs(
    latent: str = "As in the KSampler. Its size and batch are measured.",
    vae: str = "Decodes the images that are compared. Without it, rough previews of the latents are compared.",
) -> list[io.Input]:
    """Return the inputs for what is drawn; the arguments are tooltips."""
    return [
        io.Conditioning.Input("positive", tooltip="As in the KSampler."),
        io.Conditioning.Input("negative", tooltip="As in the KSampler."),
        io.Latent.Input("latent_image", tooltip=latent),
        io.Vae.Input("vae", optional=True, tooltip=vae),
    ]


def sampling_inputs(seed: str, runs: str) -> list[io.Input]:
    """Return the inputs in their order; ``seed`` and ``runs`` are tooltips."""
    samplers, schedulers = samplers_and_schedulers()
    return [
        io.Int.Input(
            "seed",
            default=0,
            min=0,
            max=LARGEST_SEED,
            control_after_generate=io.ControlAfterGenerate.fixed,
            tooltip=seed,
        ),
        io.Int.Input("steps", default=20, min=1, max=10000, tooltip="Sampling steps of each run."),
        io.Float.Input(
            "cfg", default=7.0, min=0.0, max=100.0, step=0.1, round=0.01, tooltip="Guidance scale, as in the KSampler."
        ),
        io.Combo.Input("sampler_name", options=list(samplers), tooltip="As in the KSampler."),
        io.Combo.Input("scheduler", options=list(schedulers), tooltip="As in the KSampler."),
        io.Float.Input(
            "denoise", default=1.0, min=0.0, max=1.0, step=0.01, tooltip="As in the KSampler.", advanced=True
        ),
        io.Int.Input("runs", default=3, min=1, max=MOST_ROUNDS, tooltip=runs),
    ]


def prompts_input() -> io.Input:
    """Return the input for more prompts, which grows with each that is connected."""
    one = io.Conditioning.Input("prompt", tooltip="Another positive prompt. Without it, all seeds draw positive.")
    template = io.Autogrow.TemplatePrefix(one, "prompt", min=0, max=MOST_ROUNDS - 1)
    return io.Autogrow.Input(
        "prompts",
        template,
        optional=True,
        tooltip="More positive prompts. The seeds take them in turn with positive, so each is drawn at least once.",
    )


def prompts_in(prompts: Mapping[str, Conditioning] | None) -> tuple[Conditioning, ...]:
    """Return the conditionings of that input; `InvalidSetting` for anything else."""
    if prompts is not None and not isinstance(prompts, Mapping):  # a request can link to the group as such
        remedy = "Connect each prompt to an input of its own, such as prompts.prompt0."
        raise wrong_link("prompts", prompts, "group of prompts", remedy)
    given = {name: value for name, value in (prompts or {}).items() if value is not None}
    for name, value in given.items():
        require_conditioning(name, value)
    return tuple(given.values())


def most_runs_input() -> io.Input:
    """Return the limit of the rounds. Prompts from before it was there do not set it, and make no more than runs."""
    return io.Int.Input(
        "most_runs",
        default=9,
        min=0,
        max=MOST_ROUNDS,
        optional=True,
        advanced=True,
        tooltip="Most rounds that are made where speed or image are not clear after runs. 0: never more than runs.",
    )
