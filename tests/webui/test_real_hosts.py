"""The extension in the real Stable Diffusion WebUI and Forge: what changes pictures, and that nothing stays behind."""

from __future__ import annotations

import json

import pytest
from webui.host import HOSTS_OWN, MERGE, REUSE, custom

HIRES = {"enable_hr": True, "hr_scale": 1.5, "denoising_strength": 0.9, "hr_upscaler": "Latent", "steps": 8}
HIRES |= {"hr_additional_modules": ["Use same choices"]}  # Forge has no default for it in requests

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("method", "ratio"), [("merge", 0.5), ("kv_downsample", 0.75), ("auto", 0.75)])
def test_tokens_are_reduced_and_the_next_picture_is_the_old_one(host, method, ratio):
    plain = host.draw(steps=2, width=128, height=128)
    assert host.draw(custom(method, ratio), steps=2, width=128, height=128) != plain
    assert host.report()["Apply ToMe"]["headline"] == "active in 3 of 7 self-attention blocks"
    assert host.draw(steps=2, width=128, height=128) == plain


@pytest.mark.parametrize("sampler", ["Euler", "DPM++ 2M", "Euler a", "DDIM", "DPM++ 2M SDE"])
def test_steps_are_reused(host, sampler):
    plain = host.draw(steps=14, sampler_name=sampler)
    assert host.draw(REUSE, steps=14, sampler_name=sampler) != plain
    counts = host.report()["Reuse Steps"]["counts"]
    assert counts["forecast"] > 0 and counts["evaluations"] in (13, 14)
    assert host.draw(steps=14, sampler_name=sampler) == plain


def test_the_hires_pass_has_a_choice_of_its_own(host):
    found = host.asked((True, "Off", "Same picture"), **HIRES)
    assert host.report()["Set Attention Processor"]["pass"] == "the hires pass"
    assert "Paceline: Off, Paceline hires: Same picture" in found["info"]


def test_what_was_chosen_is_written_into_the_picture_and_only_then(host):
    assert "Paceline" not in host.asked()["info"]
    answer = host.asked(MERGE)
    read = host.ask("/sdapi/v1/png-info", {"image": answer["images"][0]})["parameters"]
    ours = {name: value for name, value in read.items() if name.startswith("Paceline")}
    assert ours == {
        "Paceline": "Custom",
        "Paceline method": "merge",
        "Paceline ratio": "0.5",
        "Paceline max downsample": "auto",
        "Paceline budget": "0.0",
        "Paceline backend": HOSTS_OWN,
    }


def test_beside_the_hosts_own_token_merging_ours_steps_aside(host):
    theirs = {"override_settings": {"token_merging_ratio": 0.5}, "width": 128, "height": 128, "steps": 2}
    plain, merged = host.draw(width=128, height=128, steps=2), host.draw(**theirs)
    assert merged != plain
    assert host.draw(custom("merge", 0.5), **theirs) == merged
    assert "had already rearranged the tokens" in str(host.report()["Apply ToMe"]["details"])
    assert host.draw(width=128, height=128, steps=2) == plain


def test_a_sampler_with_noise_levels_of_its_own_is_left_alone(host):
    if all(sampler["name"] != "DPM fast" for sampler in host.ask("/sdapi/v1/samplers")):
        pytest.skip("this host has no DPM fast")
    plain = host.draw(sampler_name="DPM fast")
    assert host.draw(REUSE, sampler_name="DPM fast") == plain
    assert "DPM fast chooses its noise levels itself" in str(host.report()["Reuse Steps"]["details"])


def test_a_grid_with_our_axes(host):
    scripts = {one["name"]: one for one in host.ask("/sdapi/v1/script-info") if not one["is_img2img"]}
    axes = scripts["x/y/z plot"]["args"][0]["choices"]
    x, y = axes.index("[Paceline] choice"), axes.index("[Paceline] ratio")
    arguments = [x, "", ["Off", "Custom"], y, "0.25,0.5", [], 0, "", [], False, True, False, False, False, False, False]
    size = {"steps": 2, "width": 128, "height": 128}
    answer = host.asked(script_name="x/y/z plot", script_args=[*arguments, 0, False], **size)
    cells, texts = host.pixels(answer["images"][1:]), json.loads(answer["info"])["infotexts"][1:]
    plain = host.draw(**size)[0]
    assert [cell == plain for cell in cells] == [True, False, True, False]
    assert cells[1] != cells[3]
    assert ["Paceline: Custom" in text for text in texts] == [False, True, False, True]
    assert ["Paceline" in text for text in texts] == [False, True, False, True]
