"""The node Compare Models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.errors import InvalidSetting
from ..optimizers.hosts.comfyui.protocols import VAE, Conditioning, Latent, ModelPatcher
from ..workbench.comfyui import comparison
from ..workbench.comfyui.comparison.findings import seconds
from ..workbench.comfyui.comparison.rounds import TimedRun
from ..workbench.comfyui.links import require_conditioning, require_decoder
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
                io.Conditioning.Input("positive", tooltip="As in the KSampler."),
                io.Conditioning.Input("negative", tooltip="As in the KSampler."),
                io.Latent.Input("latent_image", tooltip="As in the KSampler. Its size and batch are measured."),
                io.Model.Input(
                    "model_optimized",
                    optional=True,
                    tooltip="The same model after the nodes you want to judge. Leave it empty to compare two VAEs "
                    "only.",
                ),
                io.Vae.Input(
                    "vae",
                    optional=True,
                    tooltip="Decodes the images that are compared. Without it, rough previews of the latents are "
                    "compared.",
                ),
                io.Vae.Input(
                    "vae_optimized",
                    optional=True,
                    tooltip="The same VAE after the nodes you want to judge. Its decoding is timed too.",
                ),
                *sampling_inputs(
                    seed="Seed of the first round of both sides. Each further round draws from the next one.",
                    runs="Timed runs of each side, each from another seed. More take longer and make the speed-up and "
                    "the worst image more certain; a single run cannot tell a gain from chance.",
                ),
                io.Boolean.Input(
                    "fp32_reference",
                    default=False,
                    advanced=True,
                    tooltip="Also draw the baseline in fp32 once, to show what rounding alone changes. Slow, and "
                    "needs more memory.",
                ),
                io.String.Input(
                    "filename_prefix",
                    default="paceline/compare",
                    advanced=True,
                    tooltip="Folder and name in ComfyUI's output folder for images and numbers (JSON). Used only "
                    "with save_files.",
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
                *(
                    io.Conditioning.Input(
                        f"{name}_optimized",
                        optional=True,
                        tooltip=f"The same as {name}, with the ControlNet after the nodes you want to judge.",
                    )
                    for name in ("positive", "negative")
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
        positive: Conditioning,
        negative: Conditioning,
        latent_image: Latent,
        filename_prefix: str,
        save_files: bool = True,
        runs: int = 3,
        warmup_runs: int = 1,
        fp32_reference: bool = False,
        fewer_steps: bool = True,
        model_optimized: ModelPatcher | None = None,
        vae: VAE | None = None,
        vae_optimized: VAE | None = None,
        positive_optimized: Conditioning | None = None,
        negative_optimized: Conditioning | None = None,
        audio_vae: VAE | None = None,
        prompts: Mapping[str, Conditioning] | None = None,
        most_runs: int = 0,
        **sampler: Any,
    ) -> io.NodeOutput:
        require_decoder("vae", vae)
        require_decoder("vae_optimized", vae_optimized)
        require_decoder("audio_vae", audio_vae)
        optimized = {"positive_optimized": positive_optimized, "negative_optimized": negative_optimized}
        given = {name: value for name, value in optimized.items() if value is not None}
        for name, value in given.items():
            require_conditioning(name, value)
        if model_optimized is None and vae_optimized is None and not given:
            remedy = "Connect what is judged: model_optimized, vae_optimized or positive_optimized."
            raise InvalidSetting("There is nothing to compare.", remedy)
        conditionings = (given.get("positive_optimized", positive), given.get("negative_optimized", negative))
        output = OutputFiles(filename_prefix, save_files)
        job = SamplingJob(positive, negative, latent_image, further=prompts_in(prompts), **sampler)
        if given and job.further:
            remedy = "Disconnect prompts, or compare the ControlNet with one prompt at a time."
            raise InvalidSetting("positive_optimized and negative_optimized do not go with prompts.", remedy)
        found = comparison.compare(
            comparison.Side("baseline", model_baseline, vae, audio_vae=audio_vae),
            comparison.Side(
                "optimized",
                model_baseline if model_optimized is None else model_optimized,
                vae if vae_optimized is None else vae_optimized,
                replace(job, positive=conditionings[0], negative=conditionings[1]) if given else None,
                audio_vae,
            ),
            job,
            comparison.ComparisonSettings(runs, warmup_runs, fp32_reference, fewer_steps, most_runs),
            say=lambda text: cls.announce(Summary("working", text)),
        )
        return show(cls, found, model_baseline, output)


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
        "frames": numbers["frames"],
        "shares": [numbers["seed_shares"][number - 1] for number in numbers["shown"]],
        "first": numbers["shown"].index(numbers["farthest"]["picture"]) if numbers["frames"] > 1 else 0,
        "motion": files.get("motion"),
        "sounds": files["sounds"],
    }


def page_state(found: str, quality: str, fewer_steps_do: bool) -> str:
    """Return the state that badge and panel show for what a verdict found.

    Another picture is a price, not a fault. A gain that fewer steps bring as well is none to be proud of.
    """
    faulty = found == "suspicious" and quality not in ("another picture", "another sound")
    if found == "faster" and fewer_steps_do:
        return "partly"
    return "failed" if faulty else _STATES.get(found, "partly")
