"""What *Make this workflow faster* runs beside a workflow's own nodes. In no menu."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.core.errors import InvalidSetting
from ..optimizers.in_comfyui.structure.model_facts import require_model
from ..optimizers.in_comfyui.structure.protocols import VAE, ModelPatcher
from ..service.comfyui.machine import progress_bar
from ..service.faster.job_store import JOBS
from .common import PacelineNode


class _PacelineObserved(PacelineNode):
    """Hand on a model; where Make this workflow faster has asked for it, it is watched while it samples."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Observed",
            "Watches a model while it samples, and changes nothing. Make this workflow faster runs it.",
            inputs=[io.Model.Input("model"), io.String.Input("job"), io.String.Input("link")],
            outputs=[io.Model.Output()],
            is_dev_only=True,
        )

    @classmethod
    def execute(cls, model: ModelPatcher, job: str, link: str, after: Any = None) -> io.NodeOutput:
        require_model(model)
        found = JOBS.find(job)  # none where somebody runs a prompt again that was saved with a picture
        if found is None:
            return io.NodeOutput(model)
        observer = found.observer if found.proof is None else found.proof.observer
        return io.NodeOutput(observer.on(model, link))


class _PacelineObservedVAE(PacelineNode):
    """Hand on a VAE; where Make this workflow faster has asked for it, it is watched while it decodes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Observed VAE",
            "Watches a VAE while it decodes, and changes nothing. Make this workflow faster runs it.",
            inputs=[io.Vae.Input("vae"), io.String.Input("job"), io.String.Input("link")],
            outputs=[io.Vae.Output()],
            is_dev_only=True,
        )

    @classmethod
    def execute(cls, vae: VAE, job: str, link: str) -> io.NodeOutput:
        found = JOBS.find(job)
        return io.NodeOutput(vae if found is None or found.proof is not None else found.observer.on_vae(vae, link))


class _PacelineTrial(PacelineNode):
    """Try what could make a model faster, or judge what a proof has drawn."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Trial",
            "Tries candidates that could make a model faster, and compares pictures of the same seeds, plain and "
            "faster. Make this workflow faster runs it.",
            inputs=[
                io.String.Input("job"),
                io.Boolean.Input("proof", default=False, optional=True),
                io.Vae.Input("vae", optional=True),
            ],
            is_output_node=True,
            is_dev_only=True,
        )

    @classmethod
    def execute(cls, job: str, proof: bool = False, vae: VAE | None = None, **taken: Any) -> io.NodeOutput:
        known = JOBS.known(job)
        if not proof:
            known.probe(progress_bar())
        elif known.proof is None:
            raise InvalidSetting("This proof is not known any more.", "Begin it anew.")
        else:
            known.proof.judge(taken, vae)
        return io.NodeOutput()
