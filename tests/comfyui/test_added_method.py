"""Methods of Apply ToMe that only this file knows: one class is all that each needs, in both hosts.

They stand in the places of two others, as the table of methods is fixed. Hosts read flags of a class, never its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from comfy_host import in_process
from comfy_host.transformers import build, conditioning, latent
from distances import close
from paceline import TokenMerging, optimize, report
from paceline.optimizers.token_merging import METHODS, BlockCall, Reduction
from random_pipelines import baseline, picture, small

TEXT = 20


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
    works_after_rope: ClassVar[bool] = True

    @classmethod
    def plan(cls, tokens: torch.Tensor, call: BlockCall) -> EvenRows:
        return cls(call.height, call.width)

    @classmethod
    def kept_tokens(cls, height, width, ratio, device="cpu"):
        return torch.arange(height * width, device=device).view(height, width)[::2].flatten()

    @property
    def tokens(self) -> int:
        return self.height * self.width

    @property
    def kept(self) -> int:
        return -(-self.height // 2) * self.width

    def reduce(self, x: torch.Tensor) -> torch.Tensor:
        return even_rows(x, self.width)


class NeighbourPairs(EvenRows):
    """The mean of each two neighbours in a row, queries too."""

    name = "merge"
    help = "the mean of two neighbours"
    action = "merge half of the tokens"
    works_after_rope: ClassVar[bool] = False
    shrinks_queries: ClassVar[bool] = True
    serves_other_layers: ClassVar[bool] = True

    @property
    def kept(self) -> int:
        return self.tokens // 2

    def reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(1, (-1, 2)).mean(2)

    def restore(self, y: torch.Tensor) -> torch.Tensor:
        return y.repeat_interleave(2, dim=1)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """The table has these two methods in the place of its own as long as a test runs."""
    monkeypatch.setitem(METHODS, "kv_downsample", EvenRows)
    monkeypatch.setitem(METHODS, "merge", NeighbourPairs)


def by_hand(studio, pairs):
    """The model with a patch of ComfyUI's own that reduces at the finest level."""
    clone, width = studio.model.clone(), 16

    def before(q, k, v, extra):
        if tuple(extra["activations_shape"][2:]) != (24, width):
            return q, k, v
        if pairs:
            return tuple(x.unflatten(1, (-1, 2)).mean(2) for x in (q, k, v))
        return q, even_rows(k, width), even_rows(v, width)

    clone.set_model_attn1_patch(before)
    if pairs:
        clone.set_model_attn1_output_patch(lambda n, extra: n.repeat_interleave(2, dim=1) if n.shape[1] == 192 else n)
    return clone


@pytest.mark.parametrize(("method", "what"), [("kv_downsample", "keys and values"), ("merge", "tokens")])
def test_one_class_is_enough_in_comfyui(studio, baseline, method, what):
    model = studio.tome(studio.model, method=method)
    image = studio.sample(model)
    assert torch.equal(image, studio.sample(by_hand(studio, method == "merge")))
    assert not torch.equal(image, baseline)
    text = studio.report(model)
    assert "active in 3 of 7 self-attention blocks" in text and f"384 -> 192 {what}" in text and "fallbacks: 0" in text


def test_a_transformer_takes_it_if_it_works_after_rope(studio):
    model = build("flux")

    def sample(one):
        words = conditioning("flux", TEXT, seed=1)
        return in_process.sample(one, words, words, latent("flux", 16, 24), steps=1, seed=7, cfg=1.0)

    def fewer(func, q, k, v, heads, mask=None, skip_reshape=False, **options):
        kept = torch.cat([torch.arange(TEXT), TEXT + EvenRows.kept_tokens(8, 12, 0.0)])
        k, v = (x.index_select(2 if skip_reshape else 1, kept) for x in (k, v))
        return func(q, k, v, heads, mask=mask, skip_reshape=skip_reshape, **options)

    expected = model.clone()
    expected.model_options["transformer_options"]["optimized_attention_override"] = fewer
    reduced = studio.tome(model, method="kv_downsample")
    assert close(sample(reduced), sample(expected)) and not close(sample(reduced), sample(model))
    assert "116 -> 68 keys and values" in studio.report(reduced)
    with pytest.raises(Exception, match="method is merge, but Flux .* auto or kv_downsample"):
        studio.tome(model, method="merge")


@pytest.mark.parametrize(("method", "what"), [("kv_downsample", "keys and values"), ("merge", "tokens")])
def test_one_class_is_enough_in_diffusers(method, what):
    pipeline, expected = small("sd15"), small("sd15")
    unet = expected.pipe.unet
    blocks = [module for module in unet.modules() if type(module).__name__ == "BasicTransformerBlock"]
    reached = []
    for block in blocks:

        def reduced(hidden_states, *args, plain=block.attn1.forward, **options):
            if hidden_states.shape[1] != 256:
                return plain(hidden_states, *args, **options)
            reached.append(1)
            if method == "merge":
                return plain(hidden_states.unflatten(1, (-1, 2)).mean(2)).repeat_interleave(2, dim=1)
            return plain(hidden_states, encoder_hidden_states=even_rows(hidden_states, 16))

        block.attn1.forward = reduced
    with optimize(pipeline.pipe, TokenMerging(method=method)):
        drawn = picture(pipeline)
        text = str(report(pipeline.pipe))
    assert torch.equal(drawn, picture(expected)) and reached
    assert not torch.equal(drawn, baseline("sd15"))
    assert "active in 3 of 10 self-attention blocks" in text and f"256 -> 128 {what}" in text
    assert torch.equal(picture(pipeline), baseline("sd15"))
