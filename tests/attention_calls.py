"""Overrides of attention in tests, and what attention was given."""

from __future__ import annotations


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
