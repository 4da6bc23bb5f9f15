"""The node Compare Models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..optimizers.hosts.comfyui.protocols import VAE, Conditioning, Latent, ModelPatcher
from ..workbench.comfyui import comparison
from ..workbench.comfyui.comparison.findings import seconds
from ..workbench.comfyui.comparison.rounds import TimedRun
from ..workbench.comfyui.links import require_decoder
from ..workbench.comfyui.output_files import OutputFiles
from ..workbench.comfyui.sampling import SamplingJob
from ..workbench.measurement.picture import comparison_sheet
from ..workbench.measurement.verdict import Verdict
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

_STATES = {"faster": "active", "no_effect": "inactive", "broken": "failed"}
"""What the page shows for the state of a verdict, where it is not ``partly``."""
_PREFIX = "paceline/compare"
_COUNTS = ("speedup", "speedup_low", "speedup_high", "seed_share")


class PacelineCompareModels(PacelineNode):
    """Measure what an optimization brings and what it costs."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineCompareModels",
            display_name="Compare Models",
            description=(
                "Samples with both models in turn, each round from another seed. Shows how much faster the optimized "
                "one is, how much memory it needs, and how its images differ from the baseline's, on average and at "
                "worst."
            ),
            search_aliases=[
                "benchmark",
                "profile",
                "speed",
                "quality",
                "psnr",
                "ssim",
                "difference",
                "measure",
            ],
            inputs=[
                io.Model.Input("model_baseline", tooltip="The model to compare with, as it comes from its loader."),
                io.Model.Input("model_optimized", tooltip="The same model after the nodes you want to judge."),
                io.Conditioning.Input("positive", tooltip="As in the KSampler."),
                io.Conditioning.Input("negative", tooltip="As in the KSampler."),
                io.Latent.Input("latent_image", tooltip="As in the KSampler. Its size and batch are measured."),
                io.Vae.Input(
                    "vae",
                    optional=True,
                    tooltip="Decodes the images that are compared. Without it, rough previews of the latents are "
                    "compared.",
                ),
                *sampling_inputs(
                    seed="Seed of the first round of both sides. Each further round draws from the next one.",
                    runs="Timed runs of each side, each from another seed. More take longer and make the speed-up and "
                    "the worst image more certain; a single run cannot tell a gain from chance.",
                ),
                save_files_input(),
                io.Boolean.Input(
                    "fewer_steps",
                    default=True,
                    optional=True,
                    advanced=True,
                    tooltip="If the optimized model is faster and draws another image, also draw the baseline with "
                    "as many steps as fit into the same time. Shows whether fewer steps would do as well.",
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
        positive: Conditioning,
        negative: Conditioning,
        latent_image: Latent,
        save_files: bool = True,
        runs: int = 3,
        fewer_steps: bool = True,
        vae: VAE | None = None,
        audio_vae: VAE | None = None,
        prompts: Mapping[str, Conditioning] | None = None,
        most_runs: int = 0,
        **sampler: Any,
    ) -> io.NodeOutput:
        require_decoder("vae", vae)
        require_decoder("audio_vae", audio_vae)
        job = SamplingJob(positive, negative, latent_image, further=prompts_in(prompts), **sampler)
        found = comparison.compare(
            comparison.Side("baseline", model_baseline, vae, audio_vae),
            comparison.Side("optimized", model_optimized, vae, audio_vae),
            job,
            comparison.ComparisonSettings(runs, fewer_steps=fewer_steps, most_runs=most_runs),
            say=lambda text: cls.announce(Summary("working", text)),
        )
        return show(cls, found, model_baseline, OutputFiles(_PREFIX, save_files))


def show(
    node: type[PacelineNode], found: comparison.Comparison, model: ModelPatcher, output: OutputFiles
) -> io.NodeOutput:
    """Save and show what was found with ``model``, and return the node's outputs: sheet of pictures, and summary."""
    lines = comparison.summary_lines(found)
    pictures, steps = found.pictures, found.evidence.fewer_steps
    control = None
    if steps is not None and pictures.fewer_steps is not None:
        control = (f"{steps.steps} steps", pictures.fewer_steps)
    numbers = {**comparison.record(found), "surroundings": comparison.environment(model)}
    # For others to read: what it was measured on, and not what is missing on this machine.
    told = [line for line in lines if line not in found.notes] + [comparison.measured_on(numbers)]
    sides = pictures.baseline, pictures.optimized
    sheet = comparison_sheet(*sides, found.verdict.text, told, control, found.evidence.worst)
    files = comparison.save(found, numbers, sheet, output, workflow_of(node))
    shown = shown_comparison(numbers, files, found.verdict, lines)
    counts = {name: numbers[name] for name in _COUNTS if numbers[name] is not None}
    node.announce(Summary(shown["state"], found.verdict.headline, counts, (found.verdict.text, *lines)))
    summary = "\n".join([found.verdict.text, *lines])
    payload = {"images": [files["comparison"]], "text": [summary], "paceline_comparison": [shown]}
    return io.NodeOutput(image_output(sheet), summary, ui=payload)


def shown_comparison(
    numbers: Mapping[str, Any], files: Mapping[str, Any], verdict: Verdict, lines: Sequence[str]
) -> dict[str, Any]:
    """Return what the page shows of a comparison: ``Comparison`` in web/js/measurements.d.ts.

    ``numbers`` are all that was found, as saved; ``lines`` stand below the verdict.
    """
    control = numbers["fewer_steps"]
    fewer = {"fewer_steps": control["difference"]} if control else {}
    unit = numbers["speedup_of"]
    return {
        **{key: numbers[key] for key in ("verdict", "speedup", "speedup_low", "speedup_high", "speedup_of")},
        "found": numbers["state"],
        "state": page_state(numbers["state"], verdict.quality, bool(control and control["as_good"])),
        "quality": verdict.quality,
        "seconds": {side: [seconds(TimedRun(**run), unit) for run in runs] for side, runs in numbers["runs"].items()},
        "distances": {"optimized": numbers["difference"], **fewer, **numbers["noise_floor"]},
        "fewer_steps": control and {key: value for key, value in control.items() if key != "difference"},
        "lines": list(lines),
        "pictures": {side: files[side] for side in ("baseline", "optimized", "fewer_steps") if side in files},
        "numbers": numbers["shown"],
        "count": numbers["count"],
        "shares": [numbers["seed_shares"][number - 1] for number in numbers["shown"]],
        "first": numbers["shown"].index(numbers["farthest"]["picture"]) if numbers["frames"] > 1 else 0,
        "motion": files.get("motion"),
        "sounds": files["sounds"],
    }


def page_state(found: str, quality: str, fewer_steps_do: bool) -> str:
    """Return the state that badge and panel show for what a verdict found.

    Another picture is a price, not a fault. A gain that fewer steps bring as well is none to be proud of.
    """
    faulty = found == "suspicious" and quality != "another picture"
    if found == "faster" and fewer_steps_do:
        return "partly"
    return "failed" if faulty else _STATES.get(found, "partly")
