"""Joined weights and fused projections, with torch alone."""

from __future__ import annotations

import pytest
import torch
from paceline.core.activity import Activity
from paceline.optimizers.qkv_fusion.projections import SEPARATE, FusedProjections
from paceline.optimizers.qkv_fusion.rows import join_rows, refuse_rows, separate_rows
from torch.multiprocessing.reductions import StorageWeakRef


def parameters(*rows, columns=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(n, columns, generator=generator).to(dtype)) for n in rows]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_joined_weights_are_the_same_memory_and_the_same_values(inference, dtype):
    with torch.inference_mode(inference):
        weights = [torch.nn.Parameter(weight.data, requires_grad=False) for weight in parameters(4, 8, 2, dtype=dtype)]
        before = [(id(weight), weight.clone(), weight.shape, weight.stride()) for weight in weights]
        joined = join_rows(weights)
    assert joined.shape == (14, 16)
    for weight, (identity, values, shape, stride) in zip(weights, before, strict=True):
        assert id(weight) == identity
        assert (weight.shape, weight.stride()) == (shape, stride)
        assert torch.equal(weight, values)
        assert weight.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()
    # As ComfyUI applies a LoRA in place; what was made in inference mode can only be changed in it.
    with torch.inference_mode(inference), torch.no_grad():
        weights[1].copy_(torch.ones(8, 16))
    assert torch.equal(joined[4:12], torch.ones(8, 16, dtype=dtype))


def test_joining_again_copies_nothing_and_keeps_nothing_alive():
    weights = parameters(4, 8, 4)
    first = join_rows(weights)
    place = first.data_ptr()
    storage = StorageWeakRef(first.untyped_storage())
    del first
    assert join_rows(weights).data_ptr() == place
    assert join_rows(weights[1:]).data_ptr() == weights[1].data_ptr() == place + 4 * 16 * 4
    for weight in weights:
        weight.data = weight.data.clone()  # as if the model had been moved to another device
    assert storage.expired()


@pytest.mark.parametrize("inference", [False, True])
def test_separated_weights_have_memory_of_their_own_and_the_same_values(inference):
    with torch.inference_mode(inference):
        weights = [torch.nn.Parameter(weight.data.clone(), requires_grad=False) for weight in parameters(4, 8, 2)]
        alone = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    before = [(id(weight), weight.clone(), weight.stride()) for weight in weights]
    place = alone.data_ptr()
    joined = StorageWeakRef(join_rows(weights).untyped_storage())
    assert len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    separate_rows([*weights, alone])
    assert len({weight.untyped_storage().data_ptr() for weight in weights}) == 3
    assert joined.expired() and alone.data_ptr() == place
    for weight, (identity, values, stride) in zip(weights, before, strict=True):
        assert id(weight) == identity and weight.stride() == stride and weight.is_inference() == inference
        assert torch.equal(weight, values) and weight.untyped_storage().nbytes() == weight.nbytes


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([torch.zeros(4, 16), torch.zeros(4, 8)], "different lengths"),
        ([torch.zeros(4, 16), torch.zeros(4, 16, dtype=torch.float16)], "different dtypes"),
        ([torch.zeros(4, 16), torch.zeros(4, 16, device="meta")], "different devices"),
        ([torch.zeros(4, 16), torch.zeros(16, 4).t()], "not contiguous"),
        ([torch.zeros(4, 3), torch.zeros(4, 3)], "blocks of 64 bytes"),
        ([torch.zeros(3), torch.zeros(3)], "blocks of 16 bytes"),
    ],
)
def test_weights_that_cannot_be_joined_are_refused_with_the_reason(tensors, reason):
    assert reason in refuse_rows(tensors)


class Attention(torch.nn.Module):
    """The order in which every attention layer asks its projections."""

    def __init__(self, bias):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, n, bias=bias) for n in (32, 16, 24))

    def forward(self, x, context=None, value=None):
        context = x if context is None else context
        return [
            layer(t) for layer, t in zip(self.layers, (x, context, context if value is None else value), strict=True)
        ]


class Counted:
    def __init__(self, attention, **options):
        self.fused = FusedProjections(attention, attention.layers, **options)
        self.fused.activity = self.activity = Activity()
        assert self.joins()
        for layer, function in zip(attention.layers, self.fused.functions, strict=True):
            layer.__dict__["forward"] = function

    def joins(self):
        """Whether the weights have to be joined now."""
        asked = []
        assert self.fused.prepare(asked.append) is None
        return bool(asked)


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
def test_all_three_from_one_multiplication(bias):
    attention, x = Attention(bias), torch.randn(2, 5, 16)
    expected = attention(x)
    counted = Counted(attention)
    for _ in range(2):
        for found, wanted in zip(attention(x), expected, strict=True):
            torch.testing.assert_close(found, wanted)
    assert counted.activity.used == {"q, k and v": 2}
    assert not counted.activity.fallbacks
    assert counted.fused.source is None  # nothing of the call is held


@torch.no_grad()
@pytest.mark.parametrize(
    ("plan", "inputs", "count", "reasons"),
    [
        (1, "xc", ["k and v"], 0),
        (SEPARATE, "xcv", [], 0),
        (0, "xc", ["q, k and v"], 2),  # a wrong plan costs time, never a wrong result
        (1, "xcv", ["k and v"], 1),
        (None, "x", [], 1),
    ],
)
def test_other_inputs_never_give_other_results(plan, inputs, count, reasons):
    attention = Attention(True)
    tensors = [torch.randn(2, n, 16) for n in (5, 7, 7)][: len(inputs)]
    expected = attention(*tensors)
    counted = Counted(attention)
    counted.fused.plan = plan
    for found, wanted in zip(attention(*tensors), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert counted.activity.used == dict.fromkeys(count, 1)
    assert counted.activity.fallback_count == reasons


@torch.no_grad()
def test_a_broken_off_call_leaves_nothing_for_the_next():
    attention, x, y = Attention(False), torch.randn(1, 3, 16), torch.randn(1, 3, 16)
    expected = attention(y)
    counted = Counted(attention)
    attention.layers[0](x)
    counted.fused.reset()
    for found, wanted in zip(attention(y), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert not counted.activity.fallbacks


@torch.no_grad()
def test_new_weights_are_noticed_and_forgotten_ones_are_free():
    attention, x = Attention(True), torch.randn(1, 3, 16)
    counted = Counted(attention)
    assert not counted.joins()
    attention.layers[1].weight = torch.nn.Parameter(torch.zeros(16, 16))
    assert counted.joins() and not counted.joins()
    assert torch.equal(attention(x)[1], attention.layers[1].bias.expand(1, 3, 16))
    storage = StorageWeakRef(attention.layers[0].weight.untyped_storage())
    counted.fused.forget()
    for layer in attention.layers:
        layer.weight.data = layer.weight.data.clone()
    assert storage.expired()
    assert counted.joins()


def test_a_refusal_is_asked_for_once_for_the_same_weights():
    attention, asked = Attention(True), []
    fused = FusedProjections(attention, attention.layers)

    def refuse(layers):
        asked.append(layers)
        return "no"

    assert [fused.prepare(refuse) for _ in range(2)] == ["no", "no"]
    assert len(asked) == 1 and not fused.joined
    attention.layers[0].weight = torch.nn.Parameter(torch.zeros(32, 16))
    assert fused.prepare(refuse) == "no" and len(asked) == 2
