"""MODELs whose attention is computed by an approximate backend, which is a function of a test."""

from __future__ import annotations

import dataclasses

from paceline.optimizers.attention.registry import get

EXACT = get("sdpa_math").load()


def approximate(studio, function, model=None):
    """Return a MODEL with an approximate backend that computes by ``function``."""
    made = studio.attention(model or studio.model, "sdpa_math")
    policy = made.get_attachment("paceline").find("attention").policy
    policy.backend = dataclasses.replace(policy.backend, name="planted", exact=False)
    policy.function = function
    from paceline.optimizers.hosts.comfyui.targets.model import ModelTarget

    return ModelTarget(made).with_techniques(ModelTarget(made).techniques)
