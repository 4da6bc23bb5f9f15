"""The node Profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.phrases import joined, phrase, translatable
from ..optimizers.hosts.comfyui.model import require_model
from ..optimizers.hosts.comfyui.reporting import Payload
from ..server.recipes import shown_steps
from ..server.remedies import Remedy, remedies_for
from ..workbench.comfyui.comparison import environment
from ..workbench.comfyui.links import require_decoder
from ..workbench.comfyui.profiling import Profile, profile_job
from ..workbench.comfyui.sampling import SamplingJob
from . import NODES
from .common import PacelineNode
from .measuring import sampling_inputs

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import VAE, Conditioning, Latent, ModelPatcher

_NAMES = {
    "attention": translatable("attention"),
    "linear": translatable("linear"),
    "convolution": translatable("convolution"),
    "copies": translatable("copies"),
    "norm_elementwise": translatable("norms and elementwise"),
    "ours": translatable("Paceline's own work"),
    "gaps": translatable("gaps (waiting for Python)"),
}


class PacelineProfile(PacelineNode):
    """Show where the time of a run goes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        sampling = sampling_inputs("As in the KSampler.", "")
        return cls.schema(
            node_id="PacelineProfile",
            display_name="Profile",
            description=(
                "Samples once and shows where the time goes: loading, every step, decoding; and inside of one step: "
                "attention, linear layers, convolutions, norms, copies, waiting. Says what helps, and how much at most."
            ),
            search_aliases=["profile", "slow", "speed", "bottleneck", "where the time goes", "measure"],
            inputs=[
                io.Model.Input("model", tooltip="The model to look at, with or without Paceline nodes before it."),
                io.Conditioning.Input("positive", tooltip="As in the KSampler."),
                io.Conditioning.Input("negative", tooltip="As in the KSampler."),
                io.Latent.Input("latent_image", tooltip="As in the KSampler. Its size and batch are measured."),
                io.Vae.Input("vae", optional=True, tooltip="Times decoding too."),
                *(entry for entry in sampling if entry.id not in ("runs", "warmup_runs")),
            ],
            outputs=[io.String.Output(display_name="summary"), io.String.Output(display_name="json")],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def apply(
        cls,
        model: ModelPatcher,
        positive: Conditioning,
        negative: Conditioning,
        latent_image: Latent,
        vae: VAE | None = None,
        **sampler: Any,
    ) -> io.NodeOutput:
        """Profile a run, and show it."""
        require_model(model)
        if vae is not None:
            require_decoder("vae", vae)
        job = SamplingJob(positive, negative, latent_image, **sampler)
        found = profile_job(model, vae, job, lambda text: cls.announce(Summary("working", text)))
        remedies = remedies_for(model, found.shares, NODES)
        shown = shown_profile(found, remedies, environment(model))
        lines = summary_lines(found, remedies)
        cls.announce(Summary("active", lines[0], details=tuple(lines[1:])))
        summary = "\n".join(lines)
        return io.NodeOutput(summary, json.dumps(shown, indent=1), ui={"text": [summary], "paceline_profile": [shown]})


def shown_profile(found: Profile, remedies: Sequence[Remedy], around: dict[str, Any]) -> Payload:
    """Return a profile as data: ``Profile`` in web/js/measurements.d.ts, and what the output ``json`` has."""
    return {
        "loading": found.loading,
        "steps": list(found.steps),
        "decoding": found.decoding,
        "step": found.step,
        "slices": found.slices,
        "remedies": [
            {"part": one.part, "title": one.title, "at_most": one.at_most, "steps": shown_steps([one.step])}
            for one in remedies
        ],
        "about": {name: str(around[name]) for name in ("model", "device", "torch", "comfyui")},
    }


def summary_lines(found: Profile, remedies: Sequence[Remedy]) -> list[str]:
    """Return the profile as text, the largest part first."""
    parts = sorted(found.shares.items(), key=lambda part: -part[1])
    shares = [
        phrase("{part} {share:.0%}", part=_NAMES.get(name, name), share=share)
        for name, share in parts
        if share >= 0.005
    ]
    times = [
        phrase("loading {seconds:.3g} s", seconds=found.loading),
        phrase("{count} {count|step|steps} {seconds:.3g} s", count=len(found.steps), seconds=sum(found.steps)),
    ]
    if found.decoding is not None:
        times.append(phrase("decoding {seconds:.3g} s", seconds=found.decoding))
    lines = [
        phrase("one step {seconds:.3g} s: {parts}", seconds=found.step, parts=joined(", ", shares[:2])),
        joined(", ", times),
        phrase("one step: {parts}", parts=joined(", ", shares)),
    ]
    return [
        *lines,
        *(phrase("{title}: at most {share:.0%} less", title=one.title, share=one.at_most) for one in remedies),
    ]
