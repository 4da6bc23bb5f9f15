"""Compile UNet where compiling fails, is cancelled, or another node, the memory or the model is in its way."""

from functools import partial

import pytest
import torch
import torch._dynamo
from comfy_host import checkpoints
from compiled_models import state
from distances import relative
from paceline.optimizers.compilation.compiler import describe_blocks
from waiting import until


def test_cores_compile_node_before_ours_is_taken_off_and_after_ours_goes_first(small, compiled, small_baseline):
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    def core(model):
        clone = model.clone()
        set_torch_compile_wrapper(model=clone, backend="eager")
        return clone

    before = compiled(core(small.model))
    assert torch.equal(small.sample(before), small_baseline)
    assert "took ComfyUI's TorchCompileModel (or another pack's) off" in small.report(before)
    assert "compiled calls: 2\n" in small.report(before)
    after = core(compiled(small.model))
    assert torch.equal(small.sample(after), small_baseline)
    assert "compiles this model too and comes after this one" in small.report(after)


def test_a_model_that_is_not_loaded_completely_is_left_alone(small, compiled, small_baseline):
    """A CPU has no smaller memory beside it: the flag that ComfyUI's loader sets then stands for it."""
    from comfy.patcher_extension import CallbacksMP

    model = compiled(small.model)
    model.add_callback(CallbacksMP.ON_PRE_RUN, lambda patcher: setattr(patcher.model, "model_lowvram", True))
    try:
        assert torch.equal(small.sample(model), small_baseline)
    finally:
        model.model.model_lowvram = False
    assert "the network is not loaded completely" in small.report(model)


def test_a_patched_block_is_left_alone_and_what_remains_of_the_patch_is_none(small, compiled, small_baseline):
    """When ComfyUI takes a patch off, the module's own method stays behind as an attribute."""
    block = small.model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0]
    patched = small.model.clone()
    path = "diffusion_model.input_blocks.1.1.transformer_blocks.0.forward"
    patched.add_object_patch(path, partial(type(block).forward, block))
    model = compiled(patched, scope="repeated_blocks")
    assert torch.equal(small.sample(model), small_baseline)
    report, (blocks,) = small.report(model), [describe_blocks(model.model.diffusion_model)]
    assert "2 x fallback: another node has replaced this method of the network itself" in report
    assert f"compiled {blocks}: 1 graph" in report
    layer = small.model.clone()
    layer.add_object_patch(path.replace("forward", "attn1.to_q.forward"), block.attn1.to_q.forward.__call__)
    model = compiled(layer, scope="repeated_blocks", fullgraph=True)
    assert torch.equal(small.sample(model), small_baseline)
    assert "2 x fallback: a patch, of another node or of Apply ToMe, runs inside of this block" in small.report(model)
    model = compiled(small.model, scope="repeated_blocks")
    assert torch.equal(small.sample(model), small_baseline)
    assert "fallback" not in small.report(model)
    assert vars(block).pop("forward").__func__ is type(block).forward


@torch._dynamo.register_backend(name="paceline_cancelled")
def cancelled(graph, inputs):
    import comfy.model_management

    comfy.model_management.interrupt_current_processing()  # as the Cancel button does
    until(lambda: False)
    return graph


def test_cancel_stops_a_compilation_and_is_no_failure(small, compiled, small_baseline):
    import comfy.model_management

    with pytest.raises(comfy.model_management.InterruptProcessingException):
        small.sample(compiled(small.model, backend="paceline_cancelled"))
    assert not comfy.model_management.processing_interrupted()
    model = compiled(small.model)
    assert torch.equal(small.sample(model), small_baseline)
    assert state(model).graphs == 1 and "fallback" not in small.report(model)


def test_progress_goes_to_the_node(small, compiled, page_server):
    def told():
        return [payload for event, payload, _ in page_server.sent if event == "paceline.compile"]

    @torch._dynamo.register_backend(name="paceline_slow")
    def slow(graph, inputs):
        assert until(told)
        return graph

    model = compiled(small.model, backend="paceline_slow")
    model.get_attachment("paceline").find("compilation").node_id = "7"
    small.sample(model)
    assert told()[0]["node"] == "7"
    assert told()[0]["headline"].startswith("compiling 0") and told()[0]["state"] == "working"
    assert [one["busy"] for one in told()] == [True] * (len(told()) - 1) + [False]


def test_a_second_copy_for_dynamic_vram_is_loaded_once_and_said(small, compiled, small_baseline):
    """There is no dynamic VRAM on a CPU: a patcher that says it is dynamic stands for it."""
    loaded = []
    dynamic = small.model.clone()
    dynamic.is_dynamic = lambda: True

    def clone(disable_dynamic=False, model_override=None):
        if model_override is None:
            loaded.append(checkpoints.smallest_unet())
        return loaded[-1].clone(model_override=model_override)

    dynamic.clone = clone
    first, second = compiled(dynamic), compiled(dynamic)
    assert len(loaded) == 1
    assert first.model is second.model is not dynamic.model
    assert torch.equal(small.sample(first), small_baseline)
    assert "a second copy of its weights, without dynamic VRAM" in small.report(first)


@pytest.mark.thorough
@pytest.mark.parametrize("dynamic", ["auto", "true"])
def test_patches_find_the_negative_prompt_in_the_batch_whatever_numbers_were_before(small, compiled, dynamic):
    """Parts of a batch are [1, 0], and [0] or [1] where each part has a call of its own."""
    seen = []

    def patched(model):
        clone = model.clone()

        def attend(n, context, value, options):
            parts = options["cond_or_uncond"]
            return (n * (1.5 if 1 in parts else 0.5) + parts.index(0) if 0 in parts else n), context, value

        clone.set_model_attn1_patch(attend)
        return clone

    for cfg in (1.0, 4.0):
        expected = small.sample(patched(small.model), cfg=cfg)
        model = patched(compiled(small.model, dynamic=dynamic))
        assert relative(small.sample(model, cfg=cfg), expected) < 1e-5
        assert "fallback" not in small.report(model)
        seen.append(expected)
    assert not torch.equal(seen[1], small.sample(small.model, cfg=4.0))
