"""Apply ToMe's other methods on ComfyUI's own UNets and samplers."""

from __future__ import annotations

import pytest
import torch
from distances import relative


def attention_calls(studio, model, **options):
    """Sample, and return the (query, key) token counts of all attention calls in their order."""
    seen = []

    def spy(func, q, k, v, *args, **kwargs):
        seen.append((q.shape[1], k.shape[1]))
        return func(q, k, v, *args, **kwargs)

    clone = model.clone()
    clone.model_options["transformer_options"]["optimized_attention_override"] = spy
    studio.sample(clone, **options)
    return seen


def attention_sizes(studio, model, **options):
    return set(attention_calls(studio, model, **options))


def test_kv_downsample_keeps_every_query(studio):
    model = studio.tome(studio.model, method="kv_downsample", ratio=0.75)
    assert attention_sizes(studio, model) == {(384, 117), (384, 77), (96, 96), (96, 77)}
    report = studio.report(model)
    assert (
        "active in 3 of 7 self-attention blocks" in report
        and "fallbacks: 0" in report
        and "384 -> 117 keys and values" in report
    )


def test_local_merge_shrinks_queries_too(studio):
    model = studio.tome(studio.model, method="local_merge", ratio=0.5)
    assert attention_sizes(studio, model) == {(192, 192), (384, 77), (96, 96), (96, 77)}


@pytest.mark.parametrize("method", ["merge", "local_merge", "kv_downsample"])
@pytest.mark.parametrize("size", [(17, 23), (24, 16)])
def test_methods_work_on_odd_sizes_and_repeat(studio, method, size):
    model = studio.tome(studio.model, method=method, max_downsample="2", refresh_every=3)
    first = studio.sample(model, size=size, steps=2)
    assert first.isfinite().all()
    assert torch.equal(studio.sample(model, size=size, steps=2), first)
    assert "active in 7 of 7" in studio.report(model)


def test_coarser_levels_can_keep_more(studio):
    model = studio.tome(studio.model, method="kv_downsample", ratio=0.75, max_downsample="2", level_decay=0.0)
    assert attention_sizes(studio, model, steps=1) == {(384, 117), (384, 77), (96, 96), (96, 77)}


def test_matchings_are_made_once_for_several_steps_and_blocks(studio, monkeypatch):
    from paceline.optimizers.token_merging.merging import Merging

    made = []
    original = Merging.plan

    def counted(tokens, call):
        made.append(call.block)
        return original(tokens, call)

    monkeypatch.setattr(Merging, "plan", counted)
    exact = studio.sample(studio.tome(studio.model), steps=4)
    assert len(made) == 12  # three blocks, four steps
    made.clear()
    shared = studio.sample(studio.tome(studio.model, refresh_every=2), steps=4)
    assert len(made) == 4  # one for the input and one for the output blocks, at steps 0 and 2
    assert 0 < relative(shared, exact) < 0.5
    made.clear()
    assert torch.equal(studio.sample(studio.tome(studio.model, refresh_every=2), steps=4), shared)
    assert len(made) == 4  # nothing is left over from the run before


@pytest.mark.parametrize("ramp", ["fade_out", "fade_in"])
def test_a_ramp_halves_the_ratio_in_one_half_of_the_steps(studio, ramp):
    model = studio.tome(studio.model, method="kv_downsample", ratio=0.75, ramp=ramp)
    keys = [k for q, k in attention_calls(studio, model, steps=8) if q == 384 and k != 77]
    halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
    full, mild = halves if ramp == "fade_out" else halves[::-1]
    assert set(full) == {117} and set(mild) == {280}


def test_auto_thins_out_large_levels_and_leaves_small_ones_alone(studio):
    model = studio.tome(studio.model, method="auto", ratio=0.75, max_downsample="2")
    assert attention_sizes(studio, model, steps=1) == {(384, 117), (384, 77), (96, 96), (96, 77)}
    report = studio.report(model)
    assert "active in 3 of 7" in report
    assert "skipped 4 blocks: 96 tokens are too few to gain from fewer" in report


def test_auto_that_gains_nowhere_switches_itself_off_and_says_so(studio):
    model = studio.tome(studio.model, method="auto")
    assert torch.equal(studio.sample(model, size=(8, 8)), studio.sample(studio.model, size=(8, 8)))
    assert "auto switched itself off: it would not have been faster" in studio.report(model)


@pytest.mark.parametrize("preset", ["quality", "balanced", "fast"])
def test_presets_reach_their_blocks(studio, preset):
    model = studio.tome(studio.model, preset=preset, ratio=0.01)
    studio.sample(model, steps=1)
    report = studio.report(model)
    assert "self-attention blocks" in report and "fallbacks: 0" in report and "keys and values" in report


def test_kv_downsample_is_nearer_to_the_baseline_than_merging_with_as_many_keys(studio, baseline):
    merged = studio.sample(studio.tome(studio.model, method="merge", ratio=0.5))
    thinned = studio.sample(studio.tome(studio.model, method="kv_downsample", ratio=0.5))
    assert relative(thinned, baseline) < relative(merged, baseline)
