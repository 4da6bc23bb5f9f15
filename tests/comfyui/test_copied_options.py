"""Nodes of others that copy options deeply, before a run and in it: the copy belongs to the same run."""

from __future__ import annotations

import copy

import pytest
import torch

from .test_off_again import ON

NODES = ("merge", "attention", "reuse")


def no_deeper(value):
    """Copy dictionaries and lists, and share everything else: as nodes do that do not copy deeply."""
    if isinstance(value, dict):
        return {key: no_deeper(item) for key, item in value.items()}
    return [*value] if isinstance(value, list) else value


def whole_run(model, copied):
    """A run with a copy of its options."""
    from comfy.patcher_extension import WrappersMP

    def sampler_sample(executor, guider, sigmas, extra_args, *args, **kwargs):
        options = copied(extra_args["model_options"])
        return executor(guider, sigmas, {**extra_args, "model_options": options}, *args, **kwargs)

    clone = model.clone()
    clone.add_wrapper_with_key(WrappersMP.SAMPLER_SAMPLE, "other", sampler_sample)
    return clone


def before_the_run(model, copied):
    """A MODEL with a copy of all that hangs on it."""
    clone = model.clone()
    for name in ("model_options", "wrappers", "callbacks", "attachments"):
        setattr(clone, name, copied(getattr(clone, name)))
    return clone


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("other", [whole_run, before_the_run])
def test_a_deep_copy_leads_to_the_same_run(studio, other, name):
    (node, inputs), drawn, counts = ON[name], [], []
    for copied in (no_deeper, copy.deepcopy):
        model = studio.run(f"Paceline{node}", model=studio.model, **inputs)
        model = other(model, copied)
        drawn.append(studio.sample(model, steps=12 if name == "reuse" else 2))
        (technique,) = model.get_attachment("paceline").techniques
        counts.append(technique.last_summary())
    assert torch.equal(*drawn)
    assert counts[0] == counts[1] and counts[0].state != "waiting"
