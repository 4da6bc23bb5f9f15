"""A method of Apply ToMe that only this file knows: one class is all that it needs, in both hosts.

It stands in the place of another, as the table of methods is fixed. Hosts read flags of a class, never its name.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from paceline import TokenMerging, optimize, report
from paceline.optimizers.token_merging import METHODS, BlockCall, Reduction
from random_pipelines import baseline, picture, small


def even_rows(x, width):
    """Leave out every second row of ``[batch, rows * width, channels]``."""
    return x.unflatten(1, (-1, width))[:, ::2].flatten(1, 2)


@dataclass(frozen=True)
class EvenRows(Reduction):
    """Keys and values of every second row; the ratio changes nothing."""

    height: int
    width: int
    name = "kv_downsample"
    help = "every second row of keys and values"
    action = "leave out half of the keys and values"

    @classmethod
    def plan(cls, tokens: torch.Tensor, call: BlockCall) -> EvenRows:
        return cls(call.height, call.width)

    @property
    def tokens(self) -> int:
        return self.height * self.width

    @property
    def kept(self) -> int:
        return -(-self.height // 2) * self.width

    def reduce(self, x: torch.Tensor) -> torch.Tensor:
        return even_rows(x, self.width)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """The table has this method in the place of its own as long as a test runs."""
    monkeypatch.setitem(METHODS, "kv_downsample", EvenRows)


def by_hand(studio):
    """The model with a patch of ComfyUI's own that reduces at the finest level."""
    clone, width = studio.model.clone(), 16

    def before(q, k, v, extra):
        if tuple(extra["activations_shape"][2:]) != (24, width):
            return q, k, v
        return q, even_rows(k, width), even_rows(v, width)

    clone.set_model_attn1_patch(before)
    return clone


def test_one_class_is_enough_in_comfyui(studio, baseline):
    model = studio.tome(studio.model, method="kv_downsample")
    image = studio.sample(model)
    assert torch.equal(image, studio.sample(by_hand(studio)))
    assert not torch.equal(image, baseline)
    text = studio.report(model)
    assert "active in 3 of 7 self-attention blocks" in text
    assert "384 -> 192 keys and values" in text and "fallbacks: 0" in text


def test_one_class_is_enough_in_diffusers():
    pipeline, expected = small("sd15"), small("sd15")
    unet = expected.pipe.unet
    blocks = [module for module in unet.modules() if type(module).__name__ == "BasicTransformerBlock"]
    reached = []
    for block in blocks:

        def reduced(hidden_states, *args, plain=block.attn1.forward, **options):
            if hidden_states.shape[1] != 256:
                return plain(hidden_states, *args, **options)
            reached.append(1)
            return plain(hidden_states, encoder_hidden_states=even_rows(hidden_states, 16))

        block.attn1.forward = reduced
    with optimize(pipeline.pipe, TokenMerging(method="kv_downsample")):
        drawn = picture(pipeline)
        text = str(report(pipeline.pipe))
    assert torch.equal(drawn, picture(expected)) and reached
    assert not torch.equal(drawn, baseline("sd15"))
    assert "active in 3 of 10 self-attention blocks" in text and "256 -> 128 keys and values" in text
