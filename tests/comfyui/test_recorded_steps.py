"""Mode cuda-graph beside other techniques: what is one recording, what counts, what gives memory back.

Real models, nodes and samplers of ComfyUI. Only the recording itself is replaced: instead of kernels on a GPU it keeps
what the recorded run returned, so whoever replays a recording that does not fit gets a wrong picture.
"""

from __future__ import annotations

import pytest
import torch
from comfy_host import in_process
from paceline.core.technique import attach
from paceline.optimizers.compilation.settings import CompileSettings, NetworkSettings
from paceline.workbench.comfyui.device_memory import beside_the_allocator, recordings_kept
from recordings import RecordingCompiler, Replayable


@pytest.fixture(autouse=True)
def untraced():
    """Run what torch.compile was given as it is: tracing it is another test's, and takes most of the time."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.fixture
def compiler(fresh_compiler):
    return RecordingCompiler()


@pytest.fixture
def recorded(small, compiler, monkeypatch):
    """Attach Compile UNet in mode cuda-graph, with the recording above."""

    def apply(model):
        from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
        from paceline.optimizers.hosts.comfyui.model import ModelTarget

        how = NetworkSettings(CompileSettings(backend="eager", mode="cuda-graph", dynamic="false"))
        return attach(ModelTarget(model), CompileUNet(model, how, compiler))

    return apply


def counts(model):
    return {item.kind: dict(item.runs.latest.activity.used) for item in model.get_attachment("paceline").techniques}


def test_steps_are_replayed_and_draw_the_same(small, recorded, compiler):
    model = recorded(small.model)
    expected = small.sample(small.model, steps=4)
    assert torch.equal(small.sample(model, steps=4), expected)
    found = compiler.last.recorded
    assert (found.recorded, found.replayed) == (1, 3)
    assert not compiler.last.not_recorded
    assert beside_the_allocator(model) == Replayable.held_bytes


def test_the_next_image_is_drawn_from_the_recordings_of_the_last_one(small, recorded, compiler):
    """ComfyUI detaches a model before each run, also from the very clone that runs next."""
    model = recorded(small.model)
    expected = small.sample(small.model, steps=4)
    for _ in range(3):
        assert torch.equal(small.sample(model, steps=4), expected)
    assert (compiler.last.recorded.recorded, compiler.last.recorded.replayed) == (1, 3 + 4 + 4)


def test_a_clone_without_recordings_gives_their_memory_back(small, recorded, compiler):
    model = recorded(small.model)
    small.sample(model, steps=3)
    small.sample(small.model, steps=2)
    assert not compiler.last.recorded._variants and beside_the_allocator(model) == 0


def test_a_comparison_keeps_the_recordings_of_a_side_until_it_is_over(small, recorded, compiler):
    model = recorded(small.model)
    with recordings_kept(small.model, model):
        for _ in range(3):
            small.sample(small.model, steps=2)
            small.sample(model, steps=4)
        assert compiler.last.recorded.recorded == 1
        import comfy.model_management

        comfy.model_management.unload_all_models()
        assert not compiler.last.recorded._variants  # there is no memory to keep them for
        small.sample(model, steps=4)
    assert not compiler.last.recorded._variants


def test_our_own_techniques_are_recorded_and_counted_as_without_it(small, recorded, compiler):
    plain = small.run("PacelineFuseQKV", model=small.attention(small.model, "vanilla"))
    expected = small.sample(plain, steps=4)
    model = recorded(plain)
    with torch.compiler.set_stance("default"):
        assert torch.equal(small.sample(model, steps=4), expected)
    assert compiler.last.recorded.replayed == 3
    without, found = counts(plain), counts(model)
    assert {kind: found[kind] for kind in without} == without
    assert sum(found["compilation"].values()) == 4 + 1  # calls, and the graph that was compiled


def test_steps_that_are_left_out_are_neither_recorded_nor_replayed(small, recorded, compiler):
    loose = {"budget": 1.0, "forecast": "hold", "reuse_forecast": True, "reuse_guidance": True}
    plain = small.run("PacelineReuseSteps", model=small.model, **{**loose, "reuse_guidance": False})
    expected = small.sample(plain, steps=12)
    model = recorded(small.run("PacelineReuseSteps", model=small.model, **loose))
    assert torch.equal(small.sample(model, steps=12), expected)
    outcome = model.get_attachment("paceline").find("step_reuse").policy.outcome
    assert outcome.forecast >= 3 and outcome.guidance == 0  # half a batch would be another recording
    assert (compiler.last.recorded.recorded, compiler.last.recorded.replayed) == (1, outcome.computed - 1)


def test_another_stack_has_recordings_of_its_own(small, recorded, compiler):
    """Clones of one model share compiled code. A recording knows nothing of guards, so it must not be shared."""
    vanilla = recorded(small.attention(small.model, "vanilla"))
    split = recorded(small.attention(small.model, "split"))
    for _ in range(2):
        for model in (vanilla, split):
            bare = small.run("PacelineRemoveOptimizations", model=model)
            backend = "vanilla" if model is vanilla else "split"
            assert torch.equal(small.sample(model, steps=3), small.sample(small.attention(bare, backend), steps=3))


def test_other_arithmetic_is_another_recording(small, recorded, compiler):
    model = recorded(small.model)
    small.sample(model, steps=4)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not before
    try:
        small.sample(model, steps=4)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert compiler.last.recorded.recorded == 2


def test_another_nodes_patch_runs_in_every_step(small, recorded, compiler):
    seen = []
    patched = small.model.clone()
    patched.set_model_attn1_patch(lambda n, context, value, extra: (seen.append(1), (n, context, value))[1])
    small.sample(recorded(patched), steps=3)
    assert compiler.last.recorded.recorded == 0
    assert sum(compiler.last.not_recorded.values()) == 3
    assert len(seen) >= 3 * 2


@pytest.mark.parametrize("method", ["kv_downsample", "auto", "local_merge"])
def test_fewer_tokens_are_recorded_where_every_step_does_the_same(small, recorded, compiler, method):
    merged = small.tome(small.model, method=method)
    expected = small.sample(merged, steps=4)
    model = recorded(merged)
    assert torch.equal(small.sample(model, steps=4), expected)
    assert compiler.last.recorded.replayed == 3 and not compiler.last.not_recorded
    assert counts(model)["token_merging"] == counts(merged)["token_merging"]


@pytest.mark.parametrize("settings", [{"method": "merge"}, {"method": "local_merge", "refresh_every": 2}])
def test_tokens_that_are_matched_anew_run_in_every_step(small, recorded, compiler, settings):
    merged = small.tome(small.model, **settings)
    expected = small.sample(merged, steps=3)
    assert torch.equal(small.sample(recorded(merged), steps=3), expected)
    assert any("Apply ToMe" in reason for reason in compiler.last.not_recorded)
    assert compiler.last.recorded.replayed == 0


def test_what_a_preset_puts_together_is_recorded(small, recorded, compiler):
    plain = small.attention(small.tome(small.model, preset="balanced", max_downsample="8"), "auto")
    reuse = {"budget": 0.1, "forecast": "auto", "reuse_forecast": True, "reuse_guidance": True}
    plain = small.run("PacelineReuseSteps", model=plain, **reuse)
    expected = small.sample(plain, steps=6)
    model = recorded(plain)
    for _ in range(2):
        assert torch.equal(small.sample(model, steps=6), expected)
    assert compiler.last.recorded.recorded == 1 and not compiler.last.not_recorded
    assert counts(model)["token_merging"] == counts(plain)["token_merging"]


def test_prompts_of_other_lengths_keep_their_recordings(small, recorded, compiler):
    """ComfyUI pads the shorter one to the longer if it fits in it a few times, and else calls for each by itself."""

    def prompts(*lengths):
        made = (in_process.random_conditioning(small.model, tokens, seed=tokens) for tokens in lengths)
        return dict(zip(("positive", "negative"), made, strict=True))

    images = ((77, 154), (77, 77))
    expected = {lengths: small.sample(small.model, steps=4, **prompts(*lengths)) for lengths in images}
    model, counts = recorded(small.model), []
    for lengths in 2 * images:
        assert torch.equal(small.sample(model, steps=4, **prompts(*lengths)), expected[lengths])
        counts.append((compiler.last.recorded.recorded, compiler.last.recorded.replayed))
    assert counts == [(1, 3), (2, 6), (2, 10), (2, 14)]
    small.sample(model, steps=4, **prompts(20, 77))  # 1540 tokens would be too many: two kinds, which replace both
    found = compiler.last.recorded
    assert (found.recorded, found.replayed, found.dropped, found.crowded) == (4, 14 + 2 * 3, 2, 0)
    assert any(line.startswith("2 CUDA graphs given up: ") for line in compiler.last.lines())


def test_more_kinds_of_steps_than_are_kept_are_counted(small, recorded, compiler):
    """Two prompts for the image and one against it, of lengths that cannot be padded to each other."""
    model = recorded(small.model)
    first, second, negative = (in_process.random_conditioning(small.model, tokens) for tokens in (20, 33, 77))
    prompts = {"positive": [*first, *second], "negative": negative}
    expected = small.sample(small.model, steps=4, **prompts)
    assert torch.equal(small.sample(model, steps=4, **prompts), expected)
    found = compiler.last.recorded
    assert (found.recorded, found.replayed, found.dropped, found.crowded) == (2, 2 * 3, 0, 3)
    assert any(line.startswith("3 steps not recorded: more kinds take turns") for line in compiler.last.lines())


@pytest.mark.parametrize("schedule", [{"start_percent": 0.4}, {"end_percent": 0.4}, {"ramp": "fade_out"}])
def test_a_window_and_a_ramp_are_recordings_of_their_own(small, recorded, compiler, schedule):
    """A recording without hooks must not be replayed where tokens are to be fewer, nor one of another ratio."""
    merged = small.tome(small.model, method="kv_downsample", **schedule)
    expected = small.sample(merged, steps=8)
    model = recorded(merged)
    for _ in range(2):
        assert torch.equal(small.sample(model, steps=8), expected)
        assert counts(model)["token_merging"] == counts(merged)["token_merging"]
    assert compiler.last.recorded.recorded == 2 and compiler.last.recorded.replayed >= 12


def test_nothing_that_ends_with_a_run_is_part_of_a_recording(small, recorded, compiler):
    """Which tokens stay is worked out in the recording: what a run had prepared is freed behind it."""
    model = recorded(small.tome(small.model, method="kv_downsample"))
    small.sample(model, steps=3)
    assert not model.get_attachment("paceline").find("token_merging").policy._prepared
    policy = model.get_attachment("paceline").find("token_merging").policy
    prepared = []
    policy._prepared_for = lambda *args: prepared.append(args)
    small.sample(model, steps=3)
    assert not prepared


def test_a_lora_is_recorded_anew_and_unloading_gives_the_memory_back(small, recorded, compiler, comfy):
    import comfy.model_management

    model = recorded(small.model)
    small.sample(model, steps=3)
    assert len(compiler.last.recorded._variants) == 1
    patched = model.clone()
    key = next(name for name in patched.model_state_dict() if name.endswith("attn1.to_q.weight"))
    patched.add_patches({key: ("diff", (torch.randn_like(patched.model_state_dict()[key]) * 0.1,))})
    bare = small.run("PacelineRemoveOptimizations", model=patched)
    assert torch.equal(small.sample(patched, steps=3), small.sample(bare, steps=3))
    assert torch.equal(small.sample(model, steps=3), small.sample(small.model, steps=3))
    small.sample(model, steps=3)
    comfy.model_management.unload_all_models()
    assert len(compiler.last.recorded._variants) == 0


def test_without_memory_for_a_replay_it_runs_as_it_is_and_says_so(small, recorded, compiler, monkeypatch):
    model = recorded(small.model)
    expected = small.sample(small.model, steps=4)
    monkeypatch.setattr(Replayable, "out_of_memory", True)
    assert torch.equal(small.sample(model, steps=4), expected)
    assert "no memory left" in compiler.last.recorded.failure
    assert len(compiler.last.recorded._variants) == 0
    assert any("no memory left" in line for line in compiler.last.lines())


@pytest.mark.parametrize("change", ["lora", "partial unload", "unload", "another clone", "low VRAM"])
def test_every_way_in_which_weights_move_is_seen(small, recorded, compiler, comfy, change):
    """Weights are looked at once a run. Whatever ComfyUI does to them in between must be noticed."""
    import comfy.model_management

    model = recorded(small.model)
    small.sample(model, steps=2)
    technique = model.get_attachment("paceline").find("compilation")
    before = technique._version(model.model)
    network = model.model.diffusion_model
    places = [weight.data_ptr() for weight in network.parameters()]
    if change == "lora":
        clone = model.clone()
        key = next(name for name in clone.model_state_dict() if name.endswith("attn1.to_q.weight"))
        clone.add_patches({key: ("diff", (torch.randn_like(clone.model_state_dict()[key]),))})
        comfy.model_management.load_models_gpu([clone])
    elif change == "partial unload":
        model.partially_unload(model.offload_device, 1)
    elif change == "unload":
        comfy.model_management.unload_all_models()
    elif change == "another clone":
        comfy.model_management.load_models_gpu([model.clone()])
    else:
        comfy.model_management.unload_all_models()
        model.patch_model(lowvram_model_memory=1)
    moved = places != [weight.data_ptr() for weight in network.parameters()]
    assert technique._version(model.model) != before or not moved, change
    assert torch.equal(small.sample(model, steps=2), small.sample(small.model, steps=2))
