"""Compare Models in a real ComfyUI: a real no-op, a real bug and a real optimization are told apart.

Time is counted in model calls, so that nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import json
from itertools import combinations, count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cases import often
from comfy_host import vaes
from comparing import Work
from paceline.measure.evidence import CONTROLS
from PIL import Image


def test_a_device_whose_allocator_counts_has_its_peak_with_what_is_beside_it(emoji, monkeypatch):
    from paceline.service.comfyui import compare

    monkeypatch.setattr(torch.cpu, "reset_peak_memory_stats", lambda device: None, raising=False)
    monkeypatch.setattr(torch.cpu, "max_memory_allocated", lambda device: 7 * 2**20, raising=False)
    monkeypatch.setattr(compare, "beside_the_allocator", lambda model: 5 * 2**20)
    assert emoji.compare(emoji.model, emoji.model, runs=1).peak("optimized") == 12 * 2**20


def test_a_real_optimization_has_its_speed_its_price_and_its_activity(emoji):
    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.1)
    sides = work.watch(emoji.model, seconds=1.25), work.watch(tome)
    found = emoji.compare(*sides, clock=work, steps=8)
    six = emoji.compare(emoji.model, emoji.model, runs=1, steps=6)
    assert torch.equal(found.pictures["fewer_steps"][:1], six.pictures["baseline"])
    assert found.verdict.state == "faster"
    assert found.evidence.speedup.ratio == pytest.approx(1.25)
    assert 0.0 < found.verdict.seed_share < 0.5
    assert [(one.kind, one.steps) for one in found.evidence.controls] == [("fewer_steps", 6), ("late_levels", 6)]
    assert found.verdict.mean_share < found.verdict.seed_share
    assert found.about["activity"]["Apply ToMe"]["text"].startswith("active in 3 of 10 self-attention blocks")
    assert "Apply ToMe" in found.about["reports"]["optimized"]
    assert "No Paceline optimizations" in found.about["reports"]["baseline"]
    assert found.evidence.repeat.rmse == 0.0
    assert found.evidence.seed.rmse > 2 * found.evidence.difference.rmse


def wrong_in_run(model: Any, wrong: int, calls_of_a_run: int, spoil: Any) -> Any:
    """A model whose patch misbehaves in one run only, as a race or a cache that is too old does."""
    clone, calls = model.clone(), count()

    def patch(output: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        if options["block"] != ("output", 5):
            return output
        run = next(calls) // calls_of_a_run  # the first is the warm-up
        return spoil(output) if run == wrong else output

    clone.set_model_attn1_output_patch(patch)
    return clone


def garbage(output: torch.Tensor) -> torch.Tensor:
    return torch.randn(output.shape, generator=torch.Generator().manual_seed(1)) * output.std() * 4


@pytest.mark.parametrize("wrong", often([3], [1, 2, 3]))
def test_garbage_in_one_run_of_three_is_called_out(emoji, wrong):
    """Also when all other runs draw the baseline's very bits, and all are faster."""
    work = Work()
    bad = work.watch(wrong_in_run(emoji.model, wrong, 4, garbage), seconds=0.5)
    found = emoji.compare(work.watch(emoji.model), bad, clock=work)
    assert found.verdict.state == "suspicious"
    assert f"The difference of picture {wrong} is larger than a seed change" in found.verdict.text
    assert not found.evidence.same_bits
    assert found.shown[0] == wrong - 1, "the bad picture is shown first"


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


def assert_shows(pictures: torch.Tensor, latents: torch.Tensor) -> None:
    """Latents are composited on white, as the demo's decoder does."""
    expected = ((latents[:, :3] - latents[:, 3:] + 2) / 2).mul(255).clamp(0, 255).byte().movedim(1, -1)
    assert (pictures.int() - expected.int()).abs().max() <= 1


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
    assert_shows(found.pictures["baseline"], sampled)


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


def test_late_levels_left_out_are_the_schedule_without_them(emoji, core_node):
    """As SamplerCustom draws with these levels. The nearer of both controls is the one that counts."""
    import comfy.samplers

    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.25)
    found = emoji.compare(work.watch(emoji.model), work.watch(tome, seconds=0.75), clock=work, steps=8, runs=2)
    fewer, late = found.evidence.controls
    assert (late.kind, late.steps, late.speedup, fewer.steps) == ("late_levels", 6, 8 / 6, 6)
    assert late.difference.rmse < fewer.difference.rmse and found.evidence.control is late
    assert "; leaving out 2 of 8 noise levels gives 1.3x, with a difference that is " in found.verdict.text
    levels = comfy.samplers.KSampler(emoji.model, 8, "cpu", "dpmpp_2m", "karras").sigmas[[0, 1, 2, 4, 6, 7, 8]]
    sampler = comfy.samplers.sampler_object("dpmpp_2m")
    with torch.inference_mode():
        drawn = core_node(
            "comfy_extras.nodes_custom_sampler", "SamplerCustom", model=emoji.model, add_noise=True, noise_seed=42,
            cfg=2.0, positive=emoji.positive, negative=emoji.negative, sampler=sampler, sigmas=levels,
            latent_image=emoji.latent,
        )["samples"]  # fmt: skip
    assert_shows(found.pictures["late_levels"][:1], drawn)


def test_two_vaes_are_compared_on_one_latent(emoji):
    """The sampler runs once for each seed, and only decoding is timed."""
    work, vae = Work(), vaes.taesd()

    def slow(seconds, change=0.0):
        def decode(latent):
            work.seconds += seconds
            return vae.decode(latent) + change

        return SimpleNamespace(decode=decode)

    sampler = work.watch(emoji.model, seconds=100.0)
    found = emoji.compare((sampler, slow(3.0)), (sampler, slow(1.5, 0.02)), clock=work, steps=2)
    assert found.unit == "decode"
    assert found.evidence.speedup.ratio == 2.0
    assert found.runs["baseline"][0].sampling_seconds is None
    assert found.evidence.difference.rmse == pytest.approx(0.02, abs=0.005)
    assert not found.evidence.same_bits
    both = emoji.compare((sampler, slow(3.0)), (work.watch(emoji.model, 50.0), slow(1.0)), clock=work, steps=2)
    assert both.unit == "picture"
    assert both.evidence.speedup.ratio == pytest.approx(203 / 101)


def test_the_files_hold_what_the_node_says(emoji, output_folder):
    """How far pictures are apart is computed anew from those that are saved; PSNR and SSIM of two: tests/unit."""
    tome = emoji.studio.tome(emoji.model, ratio=0.6)
    with torch.inference_mode():
        compare = emoji.studio.nodes["PacelineCompareModels"]
        result = compare.execute(**emoji.inputs(steps=4, runs=2, vae=vaes.taesd()), model_optimized=tome)
    image, summary = result.result
    files = {path.name.removeprefix("compare_00001_"): path for path in (output_folder / "paceline").iterdir()}
    # On a busy machine the optimized side may not be faster, and then there is no control.
    sides = ["baseline", "optimized", *(name for name in CONTROLS if f"{name}_1.png" in files)]
    names = {"other_seed.png", "comparison.png", "comparison.json"}
    assert files.keys() == names | {f"{side}_{seed}.png" for side in sides for seed in (1, 2)}
    saved = json.loads(files["comparison.json"].read_text())
    pictures = {name: np.asarray(Image.open(path)) for name, path in files.items() if name.endswith("png")}
    assert np.array_equal(np.asarray(image[0] * 255).round(), pictures["comparison.png"])

    def apart(pairs: Any) -> float:
        return np.mean([(pictures[one] / 255.0 - pictures[other] / 255.0) ** 2 for one, other in pairs]) ** 0.5

    before, after = ([f"{side}_{seed}.png" for seed in (1, 2)] for side in ("baseline", "optimized"))
    another = saved["noise_floor"]["another seed"]
    assert saved["difference"]["rmse"] == pytest.approx(apart(zip(before, after, strict=True)))
    assert another["rmse"] == pytest.approx(apart(combinations(["other_seed.png", *before], 2)))
    floor = max(another["rmse"], another["contrast"] / 3)  # core.choices.unit
    assert saved["seed_share_mean"] == pytest.approx(saved["difference"]["rmse"] / floor)
    assert saved["seed_share"] == pytest.approx(max(one["rmse"] for one in saved["distances"]) / floor)
    worst_first = sorted((1, 2), key=lambda seed: -saved["distances"][seed - 1]["rmse"])
    shown_first = [one["filename"] for one in saved["files"]["pictures"]["optimized"]]
    assert shown_first == [f"compare_00001_optimized_{seed}.png" for seed in worst_first]
    before, after = ([run["step_seconds"] for run in saved["runs"][side]] for side in ("baseline", "optimized"))
    assert saved["speedup"] == pytest.approx(np.median([b / a for b, a in zip(before, after, strict=True)]))
    low, high = saved["speedup_low"], saved["speedup_high"]  # none on a machine that is busy with other things
    assert low is high is None or low < saved["speedup"] < high

    assert summary.splitlines()[0] == saved["verdict"] == result.ui["paceline_comparison"][0]["verdict"]
    assert "Apply ToMe: active in 3 of 10" in summary
    sheet = {"filename": "compare_00001_comparison.png", "subfolder": "paceline", "type": "output"}
    assert result.ui["images"] == [sheet]
    json.dumps(result.ui, allow_nan=False)
