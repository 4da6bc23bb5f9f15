"""Set Attention Processor on ComfyUI's own models."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from comfy_host.paths import ROOT
from distances import relative

SAME = "ComfyUI's own attention is sdpa already, so nothing was changed"
RUNS_ON_CPU = ["auto", "sdpa", "sdpa_flash", "sdpa_math", "split", "sub_quadratic", "vanilla"]


@pytest.mark.parametrize("backend", RUNS_ON_CPU)
def test_every_backend_draws_the_same_image(studio, baseline, backend):
    model = studio.attention(studio.model, backend)
    assert relative(studio.sample(model), baseline) < 1e-4
    report = studio.report(model)
    # 7 blocks with self- and cross-attention, 2 steps; positive and negative in one batch
    nothing_changed = f"{SAME}\n    fallbacks: 0" if backend in ("auto", "sdpa") else ""
    assert (nothing_changed or "in 28 attention calls\n    calls: 28, fallbacks: 0") in report
    assert "VAE, text encoders and ControlNets choose their own attention" in report


def test_vanilla_repeats_bit_for_bit_and_differs_from_sdpa_in_rounding_only(studio, baseline):
    model = studio.attention(studio.model, "vanilla")
    first = studio.sample(model)
    assert torch.equal(studio.sample(model), first)
    assert torch.equal(studio.sample(studio.model), baseline)


@pytest.mark.parametrize("backend", ["xformers", "sage", "flash", "sdpa_cudnn", "sdpa_efficient"])
def test_a_backend_that_cannot_run_here_says_why_and_what_to_do(studio, backend):
    if torch.cuda.is_available():
        pytest.skip("may well run here")
    with pytest.raises(Exception) as error:
        studio.attention(studio.model, backend)
    message = str(error.value)
    assert type(error.value).__name__ == "BackendUnavailable"
    assert any(word in message for word in ("install", "cpu", "CPU"))
    assert len(message) > 60


def test_an_unknown_name_lists_the_known_ones(studio):
    with pytest.raises(Exception, match="flash9.*vanilla"):
        studio.attention(studio.model, "flash9")


def test_calls_that_a_backend_cannot_take_fall_back_and_are_counted(studio):
    """CPU flash attention takes no masks of every kind; whatever is refused must still be computed right."""
    from paceline.optimizers.attention.registry import get

    model = studio.attention(studio.model, "sdpa_flash")
    technique = model.get_attachment("paceline").find("attention")
    technique.policy.backend = _without_cross_attention(get("sdpa_flash"))
    expected = studio.sample(studio.model)
    assert relative(studio.sample(model), expected) < 1e-4
    report = studio.report(model)
    assert "in 14 attention calls\n    calls: 14, fallbacks: 14" in report
    assert "14 x fallback: 77 key tokens (needs 96 or more)" in report


def _without_cross_attention(backend):
    """The same backend with a declared limit that the text's 77 tokens do not meet."""
    import dataclasses

    limits = tuple(dataclasses.replace(limit, min_key_tokens=96) for limit in backend.limits)
    return dataclasses.replace(backend, limits=limits)


def test_a_kernel_that_fails_is_tried_once_for_each_head_size_and_then_left(studio, baseline):
    model = studio.attention(studio.model, "sdpa")
    technique = model.get_attachment("paceline").find("attention")
    calls = []

    def broken(q, k, v, **kwargs):
        calls.append(q.shape)
        raise RuntimeError("no kernel image is available")

    technique.policy.function = broken
    assert torch.equal(studio.sample(model), baseline)
    assert [shape[-1] for shape in calls] == [8, 16]
    assert "28 x fallback: RuntimeError: no kernel image is available" in studio.report(model)


class OutOfResources(Exception):
    """Triton's errors derive from Exception itself."""


@pytest.mark.parametrize("error", [OutOfResources("shared memory"), AssertionError("head size"), IndexError()])
def test_whatever_a_kernel_or_its_compiler_raises_does_not_end_sampling(studio, baseline, error):
    model = studio.attention(studio.model, "sdpa")
    technique = model.get_attachment("paceline").find("attention")

    def broken(q, k, v, **kwargs):
        raise error

    technique.policy.function = broken
    assert torch.equal(studio.sample(model), baseline)
    assert f"28 x fallback: {type(error).__name__}" in studio.report(model)


def test_an_interrupt_is_no_failure_of_a_kernel(studio):
    from comfy.model_management import InterruptProcessingException

    model = studio.attention(studio.model, "sdpa")
    technique = model.get_attachment("paceline").find("attention")
    assert InterruptProcessingException in technique.policy.always_raised  # in older ComfyUI it derives from Exception

    class Interrupt(Exception):
        pass

    def interrupted(q, k, v, **kwargs):
        raise Interrupt

    technique.policy.function, technique.policy.always_raised = interrupted, (Interrupt,)
    with pytest.raises(Interrupt):
        studio.sample(model)


def test_each_head_size_is_tried_and_those_that_fail_are_left_to_comfyui(studio, baseline, monkeypatch):
    import dataclasses

    from paceline.optimizers.attention import policy
    from paceline.optimizers.attention.registry import get

    def no_kernel_for_8(q, k, v, **kwargs):
        assert q.shape[-1] != 8, "head size"
        return get("vanilla").load()(q, k, v, **kwargs)

    stand_in = dataclasses.replace(get("vanilla"), load=lambda: no_kernel_for_8)
    monkeypatch.setattr(policy, "get", lambda name: stand_in)
    model = studio.attention(studio.model, "vanilla")
    technique = model.get_attachment("paceline").find("attention")
    assert list(technique.policy.failing) == [8] and "AssertionError: head size" in technique.policy.describe()
    assert relative(studio.sample(model), baseline) < 1e-4
    report = studio.report(model)
    assert "vanilla in" in report and "x fallback: head size 8: it failed a test call on cpu" in report


def test_nothing_is_installed_where_comfyui_computes_the_same_by_itself(studio, monkeypatch):
    from comfy.ldm.modules import attention

    slot = "optimized_attention_override"
    model = studio.attention(studio.model, "sdpa")
    assert not any(slot in options for options in studio.options_seen(model))
    # Another attention by default (a start option): sdpa is a change, and is counted.
    monkeypatch.setattr(attention, "optimized_attention", attention.attention_sub_quad)
    studio.sample(model)
    assert "sdpa in 28 attention calls\n    calls: 28, fallbacks: 0" in studio.report(model)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["torch's", "plain"],
)
def test_out_of_memory_is_the_hosts_to_handle_and_is_not_remembered(studio, baseline, error):
    model = studio.attention(studio.model, "sdpa")
    technique = model.get_attachment("paceline").find("attention")
    kernel = technique.policy.function

    def no_memory(q, k, v, **kwargs):
        raise error

    technique.policy.function = no_memory
    with pytest.raises(type(error), match="memory"):
        studio.sample(model)
    technique.policy.function = kernel
    assert torch.equal(studio.sample(model), baseline)
    assert SAME in studio.report(model) and "fallbacks: 0" in studio.report(model)


def test_an_override_of_another_pack_stays_in_force_whichever_comes_first(studio, baseline):
    calls = []

    def doubled_values(func, q, k, v, *args, **kwargs):
        calls.append(q.shape)
        return func(q, k, v * 2, *args, **kwargs)

    def with_override(model):
        clone = model.clone()
        clone.model_options["transformer_options"]["optimized_attention_override"] = doubled_values
        return clone

    expected = studio.sample(with_override(studio.model))
    assert relative(expected, baseline) > 1e-3
    for model in (
        studio.attention(with_override(studio.model), "vanilla"),
        with_override(studio.attention(studio.model, "vanilla")),
    ):
        calls.clear()
        assert relative(studio.sample(model), expected) < 1e-4
        assert len(calls) == 28
        assert "vanilla in 28 attention calls\n    calls: 28, fallbacks: 0" in studio.report(model)


def test_a_call_without_keys_is_left_to_comfyui(studio):
    """WanDancer asks for one where it is given no picture."""

    def without_text(func, q, k, v, *args, **kwargs):
        return func(q, k[:, :0], v[:, :0], *args, **kwargs) if k.shape[1] == 77 else func(q, k, v, *args, **kwargs)

    clone = studio.model.clone()
    clone.model_options["transformer_options"]["optimized_attention_override"] = without_text
    model = studio.attention(clone, "vanilla")
    assert relative(studio.sample(model), studio.sample(clone)) < 1e-4
    assert "14 x fallback: 0 key tokens (needs 1 or more)" in studio.report(model)


def test_an_override_that_computes_by_itself_is_reported(studio):
    def selfish(func, q, k, v, heads, **kwargs):
        return torch.zeros_like(q)

    clone = studio.model.clone()
    clone.model_options["transformer_options"]["optimized_attention_override"] = selfish
    model = studio.attention(clone, "sdpa")
    studio.sample(model)
    assert "28 x fallback: an attention override of another node computed the call itself" in studio.report(model)


def test_a_family_without_the_hook_is_refused_by_name(studio):
    import comfy.model_patcher
    import comfy.supported_models

    config = comfy.supported_models.HunyuanDiT({"depth": 2, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2.0})
    config.set_inference_dtype(torch.float32, None)
    model = comfy.model_patcher.CoreModelPatcher(config.get_model({}, ""), torch.device("cpu"), torch.device("cpu"))
    with pytest.raises(Exception, match="HunyuanDiT .* does not pass its attention through ComfyUI's override hook"):
        studio.attention(model, "sdpa")


def test_listing_nodes_imports_no_optional_package():
    """Schemas are asked for at every page load, and a broken optional package must not cost the nodes."""
    documented = sorted(folder.name for folder in (ROOT / "web" / "docs").iterdir())
    script = (
        "import sys\n"
        f"sys.path[:0] = {[p for p in sys.path if p.endswith('tools')]!r}\n"
        "from comfy_host import in_process, pack\n"
        "in_process.bootstrap()\n"
        "import comfy.ldm.modules.attention\n"
        "before = set(sys.modules)\n"
        "nodes = pack.load_nodes()\n"
        "[node.GET_NODE_INFO_V1() for node in nodes.values()]\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "bad = new & {'xformers', 'flash_attn', 'sageattention', 'torchao', 'tomesd', 'diffusers', 'triton'}\n"
        "assert not bad, bad\n"
        "offered = [id for id, node in nodes.items() if not node.define_schema().is_dev_only]\n"
        f"assert sorted(offered) == {documented!r}, nodes\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
