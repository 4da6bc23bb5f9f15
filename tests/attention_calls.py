"""Overrides of attention in tests, what attention was given, and backends that are a function of a test."""

import dataclasses

from paceline.optimizers import guard
from paceline.optimizers.attention.registry import get

EXACT = get("sdpa_math").load()


def approximate(studio, function, model=None):
    """Return a MODEL with an approximate backend that computes by ``function``."""
    made = studio.attention(model or studio.model, "sdpa_math")
    policy = made.get_attachment("paceline").find("attention").policy
    policy.backend = dataclasses.replace(policy.backend, name="planted", exact=False)
    policy.function = function
    from paceline.optimizers.in_comfyui.targets.model_target import ModelTarget

    return ModelTarget(made).with_techniques(ModelTarget(made).techniques)


def forget_faults():
    """Forget what was wrong with models before, as a new process does."""
    guard._known.clear()


def with_override(model, override):
    clone = model.clone()
    clone.model_options["transformer_options"]["optimized_attention_override"] = override
    return clone


def attention_lengths(model, draw):
    """Draw, and return the numbers of queries and keys of all attention calls, in their order."""
    seen = []

    def spy(func, q, k, v, *args, **kwargs):
        assert v.shape[1] == k.shape[1]
        seen.append((q.shape[1], k.shape[1]))
        return func(q, k, v, *args, **kwargs)

    draw(with_override(model, spy))
    return seen
