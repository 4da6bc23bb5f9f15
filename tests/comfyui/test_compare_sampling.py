"""Compare Models: how it samples, in which order, with which precision, and the control with fewer steps."""

from __future__ import annotations

import pytest
import torch
from comparing import Work


def told(emoji, baseline, optimized, **options):
    """Compare with up to four rounds; return the result, and how many rounds there were."""
    work, said = Work(), []
    options = {"runs": 3, "most_runs": 9, "steps": 2, "controls": (), **options}
    found = emoji.compare(work.watch(baseline), work.watch(optimized, 0.5), clock=work, say=said.append, **options)
    assert len(found.runs["baseline"]) == sum(text.startswith("round") for text in said) / 2
    return found, said


def test_rounds_end_when_the_answer_is_clear(emoji):
    same, said = told(emoji, emoji.model, emoji.model)
    assert len(same.runs["baseline"]) == 3 and "round 3 of at most 9: baseline" in said
    assert "baseline again, from the same seed" not in said, "both drew the same bits"
    slightly = emoji.model.clone()
    slightly.set_model_attn1_output_patch(lambda output, options: output * 0.999)
    other, said = told(emoji, emoji.model, slightly)
    rounds = len(other.runs["baseline"])
    assert rounds >= 5 and other.evidence.count == rounds, "so few pictures prove no quality"
    assert said.count("baseline again, from the same seed") == 1 and other.evidence.repeat.rmse == 0


def test_it_samples_as_the_sampler_node_does(emoji, core_node):
    """The very bits of KSampler, and of the preview's colours, for an image to image run with a mask."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.zeros(1, 1, 32, 32)
    mask[..., 16:] = 1.0
    latent = {"samples": torch.randn(1, 4, 32, 32, generator=generator), "noise_mask": mask, "batch_index": [2]}
    with torch.inference_mode():
        sampled = core_node(
            "nodes", "KSampler", model=emoji.model, seed=42, steps=4, cfg=2.0, sampler_name="dpmpp_2m",
            scheduler="karras", positive=emoji.positive, negative=emoji.negative, latent_image=latent, denoise=1.0,
        )["samples"]  # fmt: skip
    found = emoji.compare(emoji.model, emoji.model, latent=latent, runs=1, steps=4)
    rgb = (sampled[:, :3] - sampled[:, 3:] + 2) / 2  # composited on white, as the demo's decoder does
    expected = rgb.mul(255).clamp(0, 255).byte().movedim(1, -1)
    assert (found.pictures["baseline"].int() - expected.int()).abs().max() <= 1


def test_cancelling_ends_it_and_leaves_the_models_as_they_were(emoji):
    import comfy.model_management as management

    tome = emoji.studio.tome(emoji.model)
    before = emoji.compare(emoji.model, tome, runs=1, steps=2)

    def cancel(text: str) -> None:
        if text == "round 2 of 3: baseline":
            management.interrupt_current_processing(True)

    with pytest.raises(management.InterruptProcessingException):
        emoji.compare(emoji.model, tome, say=cancel, steps=2)
    after = emoji.compare(emoji.model, tome, runs=1, steps=2)
    for name in ("baseline", "optimized", "other_seed"):
        assert torch.equal(after.pictures[name], before.pictures[name])


def sampled(emoji, steps: int, seeds: int) -> torch.Tensor:
    """Return the pictures of the plain model, as a comparison makes them."""
    return emoji.compare(emoji.model, emoji.model, runs=seeds, steps=steps).pictures["baseline"]


def test_the_control_is_the_baseline_with_as_many_steps_as_fit(emoji):
    """Merging that takes 0.45 of the time: 2 of 5 steps. The numbers are those of the picture with 2 steps."""
    from paceline.workbench.comfyui.comparison.report import record
    from paceline.workbench.measurement.quality import compare_pictures

    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.25)
    found = emoji.compare(work.watch(emoji.model), work.watch(tome, seconds=0.45), clock=work, steps=5, runs=2)
    numbers = record(found)["fewer_steps"]
    assert (numbers["steps"], numbers["full_steps"], numbers["seconds"], numbers["speedup"]) == (2, 5, 2.0, 2.5)
    two = sampled(emoji, 2, seeds=2)
    assert torch.equal(found.pictures["fewer_steps"], two)
    alone = compare_pictures(two, found.pictures["baseline"])
    assert numbers["difference"]["rmse"] == pytest.approx(alone.rmse)
    assert numbers["ratio"] == pytest.approx(alone.rmse / found.evidence.difference.rmse)
    assert numbers["as_good"] == (numbers["ratio"] <= 1.1)
    assert record(found)["late_levels"] is None, "there are not so many late levels"
    assert f"fewer steps in the same time (2 of 5) would differ {numbers['ratio']:.2g} times" in found.verdict.text


def test_late_levels_left_out_are_the_schedule_without_them(emoji, core_node):
    """As SamplerCustom draws with these levels. The nearer of both controls is the one that counts."""
    import comfy.samplers

    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.25)
    found = emoji.compare(work.watch(emoji.model), work.watch(tome, seconds=0.75), clock=work, steps=8, runs=2)
    fewer, late = found.evidence.controls
    assert (late.kind, late.steps, late.speedup, fewer.steps) == ("late_levels", 6, 8 / 6, 6)
    assert late.difference.rmse < fewer.difference.rmse and found.evidence.control is late
    assert "; leaving out 2 of 8 levels gives 1.3x and moves the picture " in found.verdict.text
    levels = comfy.samplers.KSampler(emoji.model, 8, "cpu", "dpmpp_2m", "karras").sigmas[[0, 1, 2, 4, 6, 7, 8]]
    sampler = comfy.samplers.sampler_object("dpmpp_2m")
    with torch.inference_mode():
        drawn = core_node(
            "comfy_extras.nodes_custom_sampler", "SamplerCustom", model=emoji.model, add_noise=True, noise_seed=42,
            cfg=2.0, positive=emoji.positive, negative=emoji.negative, sampler=sampler, sigmas=levels,
            latent_image=emoji.latent,
        )["samples"]  # fmt: skip
    expected = ((drawn[:, :3] - drawn[:, 3:] + 2) / 2).mul(255).clamp(0, 255).byte().movedim(1, -1)
    assert (found.pictures["late_levels"][:1].int() - expected.int()).abs().max() <= 1
