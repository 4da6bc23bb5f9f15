"""What newer versions of ComfyUI hand over and ask for, at the interfaces through which they do.

Where the ComfyUI of these tests does not have one yet, a function with its name and its contract stands there.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SLOT = "optimized_attention_override"


@pytest.mark.parametrize("settings", [{}, {"merge_mlp": True}, {"method": "kv_downsample"}])
def test_what_is_kept_after_a_block_is_allocated_outside_of_its_recording(studio, monkeypatch, settings):
    import comfy.model_prefetch
    from paceline.optimizers.token_merging.unet_policy import UNetMergingPolicy

    depth, inside = 0, {}

    @contextmanager
    def pause():
        nonlocal depth
        depth += 1
        try:
            yield
        finally:
            depth -= 1

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                inside.setdefault(result.untyped_storage().data_ptr(), depth > 0)
            return result

    seen = []
    decide = UNetMergingPolicy.reduction

    def look(self, block, tokens, size, state):
        with Watch():
            reduction = decide(self, block, tokens, size, state)
        seen.append(depth)
        return reduction

    monkeypatch.setattr(comfy.model_prefetch, "pause_malloc_graph", pause, raising=False)
    monkeypatch.setattr(UNetMergingPolicy, "reduction", look)
    model = studio.tome(studio.model, **settings)
    studio.sample(model)
    assert seen and all(seen)
    assert inside and all(inside.values())


def own(model, function):
    clone = model.clone()
    clone.model_options["transformer_options"][SLOT] = function
    return clone


def test_calls_that_sparse_attention_takes_are_no_fault(studio):
    from comfy.ldm.modules.attention import attention_pytorch

    calls, every = 0, 2

    def sparse_attention_override(func, *args, **kwargs):
        nonlocal calls
        calls += 1
        return attention_pytorch(*args, **kwargs) if calls % every == 0 else func(*args, **kwargs)

    model = studio.attention(own(studio.model, sparse_attention_override), "sdpa_math")
    studio.sample(model)
    summary = model.get_attachment("paceline").find("attention").last_summary()
    assert summary.state == "active" and summary.counts["fallbacks"] == 0
    assert summary.headline == "sdpa_math in 14 attention calls"
    assert summary.details == ("skipped 7 blocks: ComfyUI's sparse attention computed them",)

    every = 1
    studio.sample(model)
    summary = model.get_attachment("paceline").find("attention").last_summary()
    assert summary.state == "inactive"
    assert summary.headline == "sdpa_math not active: ComfyUI's sparse attention computed them"


class Container:
    """The contract of ComfyUI's ``AttentionTensorContainer``: holds a tensor until somebody takes it."""

    def __init__(self, tensor):
        self.tensor = tensor

    def take(self):
        tensor, self.tensor = self.tensor, None
        return tensor


def in_containers(function):
    """Let a network hand its attention over in containers, as newer networks do."""
    from comfy.ldm.modules import attention

    kind = getattr(attention, "AttentionTensorContainer", Container)

    def call(q, k, v, *args, transformer_options=None, **kwargs):
        override = (transformer_options or {}).get(SLOT)
        given = (kind(q), kind(k), kind(v))
        if override is None or not hasattr(attention, "AttentionTensorContainer"):
            if override is not None and hasattr(override, "container_function"):
                options = {"transformer_options": transformer_options, "_inside_attn_wrapper": True}
                return override.container_function(*given, *args, **kwargs, **options)
            given = (q, k, v)
        return function(*given, *args, transformer_options=transformer_options, **kwargs)

    call.__wrapped__ = function.__wrapped__
    return call


def test_tensors_in_containers_reach_our_layers(studio, baseline, monkeypatch):
    from comfy.ldm.modules import attention

    for name in ("optimized_attention", "optimized_attention_masked"):
        monkeypatch.setattr(attention, name, in_containers(attention.attention_pytorch))
    model = studio.attention(studio.model, "sdpa_math")
    assert ((studio.sample(model) - baseline).abs().max() / baseline.abs().max()) < 1e-4
    assert "sdpa_math in 28 attention calls\n    calls: 28, fallbacks: 0" in studio.report(model)


def test_containers_stay_whole_for_an_override_that_takes_them(studio, baseline, monkeypatch):
    from comfy.ldm.modules import attention

    for name in ("optimized_attention", "optimized_attention_masked"):
        monkeypatch.setattr(attention, name, in_containers(attention.attention_pytorch))
    taken = []

    def backend(func, *args, **kwargs):
        return func(*args, **kwargs)

    def with_containers(q, k, v, *args, **kwargs):
        taken.append(type(q).__name__)
        return attention.attention_pytorch(q.take(), k.take(), v.take(), *args, **kwargs)

    backend.container_function = with_containers
    model = studio.attention(own(studio.model, backend), "sdpa_math")
    assert torch.equal(studio.sample(model), baseline)
    assert len(taken) == 28 and all("Container" in name for name in taken)
    assert "28 x fallback: an attention override of another node computed the call itself" in studio.report(model)


@pytest.fixture
def with_wishes(studio):
    """A checkpoint that asks for an attention of its own in one layer."""
    block = studio.model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0]
    block.attn1.comfy_attention = SimpleNamespace(config={"format": "int8"})
    block.attn2.comfy_attention = SimpleNamespace(config=None)
    yield studio.model
    del block.attn1.comfy_attention, block.attn2.comfy_attention


def test_attention_that_a_checkpoint_asks_for_is_reported_or_left_alone(studio, with_wishes, monkeypatch):
    from comfy.ldm.modules import attention

    model = studio.attention(with_wishes, "sdpa_math")
    assert "the checkpoint asks for an attention of its own in 1 layer," in studio.report(model)

    monkeypatch.setattr(attention, "optimized_attention", attention.attention_sub_quad)
    model = studio.run("PacelineCompileUNet", model=with_wishes, backend="eager", scope="repeated_blocks")
    with torch.compiler.set_stance("force_eager"):
        seen = studio.options_seen(model, steps=1)
    assert seen and not any(SLOT in options for options in seen)
