"""The node Profile."""

from __future__ import annotations

import json
from typing import Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.phrases import phrase
from ..optimizers.hosts.comfyui.runtime.reporting import Payload
from ..optimizers.hosts.comfyui.structure.model import require_model
from ..optimizers.hosts.comfyui.structure.protocols import VAE, ModelPatcher
from ..workbench.comfyui.comparison.report import environment
from ..workbench.comfyui.links import require_decoder
from ..workbench.comfyui.profiling import Profile, profile_job
from ..workbench.comfyui.sampling import SamplingJob
from .common import PacelineNode
from .measuring import drawn_inputs, sampling_inputs

_NAMES = {
    "norm_elementwise": "norms and elementwise",
    "ours": "Paceline's own work",
    "gaps": "gaps (waiting for Python)",
}
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
        "weights": list(found.weights.lines(found.seconds)),
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
        *found.weights.lines(found.seconds),
    ]
