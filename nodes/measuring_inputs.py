"""What Compare Models and Benchmark Sweep have in common: how to sample and how often, and a picture as an output."""

from __future__ import annotations

from collections.abc import Mapping

from comfy_api.latest import io

from ..measure.speedup import MOST_ROUNDS
from ..optimizers.core.settings import LARGEST_SEED
from ..optimizers.in_comfyui.structure.protocols import Conditioning
from ..service.comfyui.links import require_conditioning, wrong_link
from ..service.comfyui.sampling_job import samplers_and_schedulers


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
