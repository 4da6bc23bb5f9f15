"""Models on which nothing else is compiled, and what is known of their compiled code."""

from __future__ import annotations

import copy
from typing import Any

from comfy_host import in_process


def with_model_of_its_own(studio: Any, model: Any) -> Any:
    """Return the studio with a model on which no other test has compiled anything, and prompts for it."""
    made = copy.copy(studio)
    made.model = model
    made.positive, made.negative = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
    return made


def state(model: Any) -> Any:
    """Return the counts of a MODEL's compiled network."""
    technique = model.get_attachment("paceline").find("compilation")
    return next(iter(technique.policy.used)).functions[0].state


def dynamic(patcher: Any) -> Any:
    """Return a patcher of the same network that says that its weights are in dynamic VRAM, which a CPU has not."""
    import comfy.model_patcher

    class Dynamic(comfy.model_patcher.ModelPatcher):
        def is_dynamic(self) -> bool:
            return True

    return Dynamic(patcher.model, patcher.load_device, patcher.offload_device)
