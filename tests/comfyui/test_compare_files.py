"""Compare Models with VAEs, the files it writes, and what it says to wrong inputs."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from comfy_host import vaes
from comparing import Work
from paceline.workbench.measurement.evidence import CONTROLS
from PIL import Image
from skimage.metrics import structural_similarity


@pytest.fixture(scope="module")
def vae(comfy):
    return vaes.taesd()


def test_two_vaes_are_compared_on_one_latent(emoji, vae):
    """The sampler runs once for each seed, and only decoding is timed."""
    import copy

    work = Work()

    class Slow:
        def __init__(self, seconds, change=0.0):
            self.copy, self.seconds, self.change = copy.copy(vae), seconds, change

        def decode(self, latent):
            work.seconds += self.seconds
            return self.copy.decode(latent) + self.change

    sampler = work.watch(emoji.model, seconds=100.0)
    found = emoji.compare((sampler, Slow(3.0)), (sampler, Slow(1.5, 0.02)), clock=work, steps=2)
    assert found.unit == "decode"
    assert found.evidence.speedup.ratio == 2.0
    assert found.runs["baseline"][0].sampling_seconds is None
    assert found.evidence.difference.rmse == pytest.approx(0.02, abs=0.005)
    assert not found.evidence.same_bits
    both = emoji.compare((sampler, Slow(3.0)), (work.watch(emoji.model, 50.0), Slow(1.0)), clock=work, steps=2)
    assert both.unit == "picture"
    assert both.evidence.speedup.ratio == pytest.approx(203 / 101)


def test_the_files_hold_what_the_node_says(emoji, vae, output_folder):
    """Every quality number, computed anew by scikit-image from the saved pictures."""
    inputs = emoji.inputs(latent_image=emoji.whole, steps=4, runs=2, vae=vae)
    tome = emoji.studio.tome(emoji.model, ratio=0.6)
    with torch.inference_mode():
        result = emoji.studio.nodes["PacelineCompareModels"].execute(**inputs, model_optimized=tome)
    image, summary = result.result
    names = ["other_seed.png", "comparison.png", "comparison.json"]
    # On a busy machine the optimized side may not be faster, and then there is no control.
    folder = output_folder / "paceline"
    controls = [name for name in CONTROLS if (folder / f"compare_00001_{name}_1.png").exists()]
    sides = ["baseline", "optimized", *controls]
    names += [f"{side}_{seed}.png" for side in sides for seed in (1, 2)]
    files = {name: folder / f"compare_00001_{name}" for name in names}
    assert sorted(path.name for path in (output_folder / "paceline").iterdir()) == sorted(
        p.name for p in files.values()
    )
    saved = json.loads(files["comparison.json"].read_text())
    pictures = {name: np.asarray(Image.open(path)) for name, path in files.items() if name.endswith("png")}
    assert np.array_equal(np.asarray(image[0] * 255).round(), pictures["comparison.png"])

    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    before, after = ([f"{side}_{seed}.png" for seed in (1, 2)] for side in ("baseline", "optimized"))
    seeds = list(combinations(["other_seed.png", *before], 2))
    for pairs, numbers in (
        (list(zip(before, after, strict=True)), saved["difference"]), (seeds, saved["noise_floor"]["another seed"])
    ):  # fmt: skip
        drawn = [[pictures[name] for name in pair] for pair in pairs]
        error = np.mean([(one / 255.0 - other / 255.0) ** 2 for one, other in drawn])
        assert numbers["rmse"] == pytest.approx(error**0.5)
        assert numbers["psnr"] == pytest.approx(-10 * np.log10(error))
        ssim = [structural_similarity(*pair, channel_axis=2, data_range=255, **options) for pair in drawn]
        assert numbers["ssim"] == pytest.approx(np.mean(ssim), abs=1e-6)
    floor = saved["noise_floor"]["another seed"]["rmse"]
    assert saved["seed_share_mean"] == pytest.approx(saved["difference"]["rmse"] / floor)
    assert saved["seed_share"] == pytest.approx(max(one["rmse"] for one in saved["distances"]) / floor)
    worst_first = sorted((1, 2), key=lambda seed: -saved["distances"][seed - 1]["rmse"])
    assert [one["filename"] for one in saved["files"]["pictures"]["optimized"]] == [
        f"compare_00001_optimized_{seed}.png" for seed in worst_first
    ]
    before, after = ([run["step_seconds"] for run in saved["runs"][side]] for side in ("baseline", "optimized"))
    assert saved["speedup"] == pytest.approx(np.median([b / a for b, a in zip(before, after, strict=True)]))
    low, high = saved["speedup_low"], saved["speedup_high"]  # none on a machine that is busy with other things
    assert low is high is None or low < saved["speedup"] < high

    assert summary.splitlines()[0] == saved["verdict"]
    assert f"PSNR {saved['difference']['psnr']:.1f} dB" in summary
    assert "noise floor: another seed: PSNR" in summary
    assert "Apply ToMe: active in 3 of 10" in summary
    shown = result.ui["paceline_comparison"][0]
    assert shown["verdict"] == saved["verdict"]
    sheet = {"filename": "compare_00001_comparison.png", "subfolder": "paceline", "type": "output"}
    assert result.ui["images"] == [sheet]
    json.dumps(result.ui, allow_nan=False)
