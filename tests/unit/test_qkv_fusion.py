"""Joined weights, fused projections and what is said of them, with torch alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.qkv_fusion.projections import FusedProjections
from paceline.optimizers.qkv_fusion.qkv_policy import QKVFusion
from paceline.optimizers.qkv_fusion.rows import join_rows, refuse_rows, separate_rows
from torch.multiprocessing.reductions import StorageWeakRef


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_become_one_piece_of_memory_and_pieces_of_their_own_again(inference, dtype):
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode(inference):
        values = [torch.randn(n, 16, generator=generator).to(dtype) for n in (4, 8, 2)]
        weights = [torch.nn.Parameter(value.clone(), requires_grad=False) for value in values]
        joined = join_rows(weights)
    place, storage = joined.data_ptr(), StorageWeakRef(joined.untyped_storage())
    assert torch.equal(joined, torch.cat(values)) and not joined.is_inference()
    assert {weight.untyped_storage().data_ptr() for weight in weights} == {joined.untyped_storage().data_ptr()}
    # As ComfyUI applies a LoRA in place; what was made in inference mode can only be changed in it.
    with torch.inference_mode(inference), torch.no_grad():
        weights[1].copy_(torch.ones(8, 16))
    assert torch.equal(joined[4:12], torch.ones(8, 16, dtype=dtype))
    assert join_rows(weights).data_ptr() == place  # copies nothing
    del joined
    identities = [id(weight) for weight in weights]
    separate_rows(weights)
    assert storage.expired() and [id(weight) for weight in weights] == identities
    for weight, value in zip(weights, [values[0], torch.ones_like(values[1]), values[2]], strict=True):
        assert torch.equal(weight, value) and weight.stride() == value.stride()
        assert weight.is_inference() == inference and weight.untyped_storage().nbytes() == weight.nbytes
    before = weights[0].data_ptr()
    separate_rows(weights)
    assert weights[0].data_ptr() == before  # alone already


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.zeros(4, 16), torch.zeros(4, 8)],
        [torch.zeros(4, 16), torch.zeros(4, 16, dtype=torch.float16)],
        [torch.zeros(4, 16), torch.zeros(4, 16, device="meta")],
        [torch.zeros(4, 16), torch.zeros(16, 4).t()],
        [torch.zeros(4, 3), torch.zeros(4, 3)],
        [torch.zeros(3), torch.zeros(3)],
        [torch.zeros(4, 16)] * 2,
    ],
    ids=range(7),
)
def test_weights_that_cannot_be_joined_are_refused_with_the_reason(reads, tensors):
    reads(refuse_rows(tensors))


class Attention(torch.nn.Module):
    """The order in which every attention layer asks its projections."""

    def __init__(self, bias):
        super().__init__()
        torch.manual_seed(1)
        self.q, self.k, self.v = (torch.nn.Linear(16, n, bias=bias) for n in (32, 16, 24))

    def forward(self, x, context=None, value=None):
        context = x if context is None else context
        return self.q(x), self.k(context), self.v(context if value is None else value)


class Fused(FusedProjections):
    """Put on an attention layer for good; counts how often its weights are joined."""

    refusal, asked = "", 0

    def __init__(self, attention):
        super().__init__(attention, [getattr(attention, name) for name in "qkv"])
        for layer, function in zip(self.layers, self.functions, strict=True):
            layer.__dict__["forward"] = function

    def why_alone(self, layer, device):
        return self.refusal

    def _join(self):
        self.asked += 1
        return super()._join()


@torch.no_grad()
def test_new_weights_are_noticed_and_forgotten_ones_are_free():
    attention, x = Attention(True), torch.randn(1, 3, 16)
    fused = Fused(attention)
    for times in (1, 1):
        assert fused.prepare() is None and fused.asked == times
    attention.k.weight = torch.nn.Parameter(torch.zeros(16, 16))
    assert fused.prepare() is None and fused.asked == 2
    assert torch.equal(attention(x)[1], attention.k.bias.expand(1, 3, 16))
    storage = StorageWeakRef(attention.q.weight.untyped_storage())
    fused.forget()
    for layer in fused.layers:
        layer.weight.data = layer.weight.data.clone()
    assert storage.expired()
    fused.refusal = "no"
    assert [fused.prepare(), fused.prepare()] == ["no", "no"] and fused.asked == 2 and not fused._together
    fused.refusal = ""
    attention.k.bias = torch.nn.Parameter(torch.ones(16))
    assert fused.prepare() is None and torch.equal(attention(x)[1], torch.ones(1, 3, 16))
    attention.k.bias = torch.nn.Parameter(torch.zeros(16))
    assert fused.prepare() is None and torch.equal(attention(x)[1], torch.zeros(1, 3, 16))


@pytest.mark.parametrize(
    ("used", "fallbacks"),
    [
        ({}, {}), ({}, {"why": 2}), ({"k and v": 1}, {}), ({"q, k and v": 4, "k and v": 2}, {}),
        ({"q, k and v": 4}, {"why": 1}),
    ],
    ids=range(5),
)  # fmt: skip
def test_the_report_says_in_how_many_calls_and_why_not(reads, used, fallbacks):
    found = QKVFusion([SimpleNamespace(names=("q, k and v",))], ()).summarize(Activity(used=used, fallbacks=fallbacks))
    reads(found.state, found.headline)
    counts = {"q_k_v": used.get("q, k and v", 0), "k_v": used.get("k and v", 0), "fallbacks": sum(fallbacks.values())}
    assert found.counts == counts
    assert list(found.details) == [f"{count} x fallback: {why}" for why, count in fallbacks.items()]
