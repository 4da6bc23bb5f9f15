"""What the search of *Make this workflow faster* runs beside a workflow's own nodes (server/search.py). In no menu."""

from __future__ import annotations

import math
from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.model import require_model
from ..optimizers.hosts.comfyui.protocols import VAE, Latent, ModelPatcher
from ..workbench.comfyui.latents import decode, streams_of
from ..workbench.comfyui.links import require_latent
from ..workbench.comfyui.output_files import OutputFiles
from ..workbench.comfyui.seed_share import distance, seed_distance
from ..workbench.comfyui.work_count import WorkCount, work_of
from ..workbench.measurement.picture import side_by_side
from ..workbench.measurement.quality import to_8_bit
from ..workbench.search.engine import PICTURES
from .common import PacelineNode


class _PacelineCounted(PacelineNode):
    """Hand on a model that counts what it computes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="_PacelineCounted",
            display_name="Counted",
            description="Counts what a model computes. Make this workflow faster runs it.",
            inputs=[io.Model.Input("model"), io.String.Input("run")],
            outputs=[io.Model.Output()],
            is_dev_only=True,
        )

    @classmethod
    def apply(cls, model: ModelPatcher, run: str) -> io.NodeOutput:
        require_model(model)
        return io.NodeOutput(WorkCount().on(model))


class _PacelineTried(PacelineNode):
    """Say how far a candidate's picture is from the plain one, and how much less work it was."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        plain = [io.Latent.Input(f"plain_{seed}") for seed in range(PICTURES)]
        return cls.schema(
            node_id="_PacelineTried",
            display_name="Tried",
            description="Compares what a workflow draws with other settings. Make this workflow faster runs it.",
            inputs=[
                io.String.Input("key"),
                io.Int.Input("seed", min=0, max=PICTURES - 1),
                io.Float.Input("limit"),
                *plain,
                io.Latent.Input("again"),
                io.Latent.Input("tried"),
                io.Model.Input("plain_model"),
                io.Model.Input("tried_model"),
                io.Vae.Input("vae", optional=True),
            ],
            outputs=[],
            is_output_node=True,
            is_dev_only=True,
        )

    @classmethod
    def apply(
        cls,
        key: str,
        seed: int,
        limit: float,
        again: Latent,
        tried: Latent,
        plain_model: ModelPatcher,
        tried_model: ModelPatcher,
        vae: VAE | None = None,
        **plain: Latent,
    ) -> io.NodeOutput:
        for latent in (tried, again, *plain.values()):
            require_latent("The sampler's result", latent)
        drawn = [plain[f"plain_{number}"]["samples"] for number in range(PICTURES)]
        apart, own = seed_distance(drawn), distance(again["samples"], drawn[0])[0]
        far, number = distance(tried["samples"], drawn[seed])
        share = far / apart if apart else math.inf
        before, after = work_of(plain_model), work_of(tried_model)
        found: dict[str, Any] = {
            "key": key,
            "seed": seed,
            "gain": before.rows / max(1, after.rows),
            "share": share if math.isfinite(share) else None,
            "repeat": own / apart if apart and math.isfinite(own) else None,
            "seconds": {"baseline": before.seconds, "optimized": after.seconds},
            "picture": None,
        }
        if vae is not None and share <= limit:
            latents = [streams_of(one)[0][number][None] for one in (drawn[seed], tried["samples"])]
            pair = side_by_side(*(to_8_bit(decode(vae, latent)) for latent in latents))[0]
            found["picture"] = OutputFiles("paceline/trial", keep=False).save_picture("tried.png", pair)
        return io.NodeOutput(ui={"paceline_tried": [found]})
