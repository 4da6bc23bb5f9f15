"""Comparisons with the demo's trained model, and a clock that counts model calls."""

from __future__ import annotations

from itertools import count
from typing import Any

import emoji_model
import torch


class Work:
    """A clock that only moves when a model is called: by one second for each call, unless told otherwise."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def watch(self, model: Any, seconds: float = 1.0) -> Any:
        """Return a clone of a model whose calls take so long."""

        def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
            self.seconds += seconds
            return apply(arguments["input"], arguments["timestep"], **arguments["c"])

        clone = model.clone()
        clone.set_model_unet_function_wrapper(wrapper)
        return clone


class Emoji:
    """The demo's trained model, and comparisons with it: of a quarter of a picture, unless told otherwise."""

    def __init__(self, studio: Any) -> None:
        self.studio = studio
        self.model, encode = emoji_model.load()
        self.positive, self.negative = encode("red apple"), encode("")
        self.latent, self.whole = ({"samples": torch.zeros(1, 4, size, size)} for size in (16, 32))

    def compare(self, baseline: Any, optimized: Any, **options: Any) -> Any:
        from paceline.measure.measure import MeasurePlan
        from paceline.service.comfyui.compare import Side, compare
        from paceline.service.comfyui.sampling_job import SamplingJob

        latent = options.pop("latent", self.latent)
        # Without a clock of the test's own, one that is a second later each time it is asked.
        seed, clock = options.pop("seed", 42), options.pop("clock", None) or count().__next__
        say = options.pop("say", str)
        steps = options.pop("steps", 4)
        job = SamplingJob(self.positive, self.negative, latent, seed, steps, 2.0, "dpmpp_2m", "karras")
        sides = [Side(*side) if isinstance(side, tuple) else Side(side) for side in (baseline, optimized)]
        plan = MeasurePlan(steps, prompts=job.prompts, **options)
        with torch.inference_mode():
            return compare(*sides, job, plan, say, clock)

    def inputs(self, **changes: Any) -> dict[str, Any]:
        """Return inputs of Compare Models, which draws one step unless told otherwise."""
        rounds = {"runs": 1}
        return {"model_baseline": self.model, **self.sampling(), **rounds, **changes}

    def sampling(self, **changes: Any) -> dict[str, Any]:
        """Return inputs of a node that samples: one step of a quarter of a picture, unless told otherwise."""
        prompts = {"positive": self.positive, "negative": self.negative, "latent_image": self.latent}
        solver = {"cfg": 2.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
        return {**prompts, "seed": 1, "steps": 1, **solver, **changes}
