"""What a trial of *Make this workflow faster* runs (server/trial.py). It is in no menu."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.errors import InvalidSetting
from ..optimizers.hosts.comfyui.model import require_model
from ..optimizers.hosts.comfyui.protocols import VAE, ModelPatcher
from ..workbench.comfyui import comparison
from ..workbench.comfyui.links import require_control_net, require_decoder
from ..workbench.comfyui.prompt import Link
from ..workbench.comfyui.segment import Segment
from ..workbench.comfyui.workflow import Workflow
from ..workbench.comfyui.workflow_job import StepWatch, WorkflowJob
from ..workbench.measurement.speedup import MOST_ROUNDS
from .common import PacelineNode
from .compare_models import show


class _PacelineTrial(PacelineNode):
    """Compare a workflow's own sampling, or decoding, with one model, VAE or ControlNet and with another."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="_PacelineTrial",
            display_name="Trial",
            description="Measures a part of a workflow with two models in turn. Make this workflow faster runs it.",
            inputs=[
                io.String.Input("scene", multiline=True),
                io.AnyType.Input("baseline"),
                io.AnyType.Input("optimized"),
                io.Int.Input("runs", default=3, min=1, max=MOST_ROUNDS),
                io.Int.Input("warmup_runs", default=1, min=0, max=MOST_ROUNDS),
                io.Model.Input("model", optional=True),
                io.Vae.Input("vae", optional=True),
                io.Vae.Input("audio_vae", optional=True),
                io.Int.Input("most_runs", default=0, min=0, max=MOST_ROUNDS, optional=True),
            ],
            outputs=[],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
            is_dev_only=True,
        )

    @classmethod
    def apply(
        cls,
        scene: str,
        baseline: Any,
        optimized: Any,
        runs: int = 3,
        warmup_runs: int = 1,
        model: ModelPatcher | None = None,
        vae: VAE | None = None,
        audio_vae: VAE | None = None,
        most_runs: int = 0,
        **given: Any,
    ) -> io.NodeOutput:
        kind, end, wired, drawn = _read(scene)
        watch = StepWatch()
        job = WorkflowJob(end, wired, drawn, {_link(name): value for name, value in given.items()}, watch)

        def side(title: str, value: Any) -> comparison.Side:
            if kind == "model":
                require_model(value)
                return comparison.Side(title, watch.on(value), vae, audio_vae=audio_vae)
            require_model(model)
            assert model is not None
            if kind == "vae":
                require_decoder("vae", value)
                return comparison.Side(title, model, value)
            require_control_net("control_net", value)
            return comparison.Side(title, model, vae, replace(job, control_net=value), audio_vae)

        found = comparison.compare(
            before := side("baseline", baseline),
            side("optimized", optimized),
            job,
            comparison.ComparisonSettings(runs, warmup_runs, fewer_steps=False, most_runs=most_runs),
            say=lambda text: cls.announce(Summary("working", text)),
        )
        return show(cls, found, before.model)


def _read(scene: str) -> tuple[str, Link, Segment, Segment]:
    """Return what the wire carries, what gives the latent, and nodes behind the wire and beside it (trial_scene.py)."""
    try:
        parts = json.loads(scene)
        (id, slot), seeded = parts["end"], frozenset(map(str, parts["seeded"]))
        wired, drawn = (Segment(Workflow.read(parts[name]), seeded) for name in ("wired", "drawn"))
        return str(parts["kind"]), (str(id), int(slot)), wired, drawn
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidSetting("This scene cannot be read.", "Only Make this workflow faster makes scenes.") from error


def _link(name: str) -> Link:
    id, _, slot = name.rpartition(" ")
    return id, int(slot) if slot.isdecimal() else 0
