"""The extension in the real Stable Diffusion WebUI and Forge: installed, drawing, measuring, beside others."""

from __future__ import annotations

import io
import json
import re
import threading
import urllib.error
from pathlib import Path

import pytest
from browser.page import PICTURES
from comfy_host.paths import ROOT
from PIL import Image
from trust.webui_requests import Judge, Requests
from waiting import until
from webui.host import ALL, HOSTS_OWN, MERGE, NAMES, REUSE, Host, custom, needed, running, trouble
from webui.page import opened

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
        "Paceline residual": "auto",
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


def test_after_random_requests_the_plain_picture_is_the_old_one(host):
    requests, judge = Requests(host), Judge(host)
    for seed in range(10):
        request = requests.request(seed)
        assert request == requests.request(seed)
        assert not judge.judge(request).problems, request


@pytest.mark.parametrize("name", NAMES)
def test_it_is_there_after_a_restart_and_needs_nothing_else(name: str, tmp_path: Path):
    needed(name)
    data = tmp_path / "data"
    data.mkdir()
    with running(name, data, extensions={}) as host:
        plain = host.draw()
        with opened(host, tmp_path / "browser") as page:
            page.install(ROOT.as_uri())
    with running(name, data, extensions={}) as host:
        assert host.draw() == plain
        host.draw(REUSE)
        assert host.report()["Reuse Steps"]["state"] == "active"
        assert host.draw() == plain
        log = host.log.read_text()
    assert "Traceback" not in log, log[-3000:]


WIDE = {"width": 256, "height": 128, "steps": 3}
"""What HyperTile cuts into tiles: it cuts nothing smaller."""


def only(host, name, why):
    if host.name != name:
        pytest.skip(why)


def changed_and_back(host, arguments, other, same=False, **options):
    """Draw plain, with something else, with both and back again, and return what ours says beside the other."""
    plain, theirs = host.draw(**options), host.draw(**options, **other)
    assert theirs != plain
    both = host.draw(arguments, **options, **other)
    said = host.report()
    assert both != plain and (both == theirs) == same
    assert host.draw(**options, **other) == theirs
    assert host.draw(**options) == plain
    return said


def test_beside_controlnet(host):
    only(host, "FORGE", "ControlNet is an extension of its own in this host")
    names = host.ask("/controlnet/model_list")["model_list"]
    picture = host.asked(width=128, height=128, steps=2)["images"][0]
    unit = {"enabled": True, "module": "None", "image": picture, "save_detected_map": False}
    unit["model"] = next(name for name in names if name.startswith("control"))
    said = changed_and_back(host, ALL, {"alwayson_scripts": {"ControlNet": {"args": [unit]}}}, steps=14)
    assert {one["state"] for one in said.values()} == {"active"}
    assert said["Reuse Steps"]["counts"]["forecast"] > 0


def test_beside_hypertile(host):
    only(host, "WEBUI", "this host has no HyperTile")
    host.ask("/sdapi/v1/options", {"hypertile_enable_unet": False, "hypertile_max_tile_unet": 256})
    merged = host.draw(MERGE, **WIDE)
    tiles = {"override_settings": {"hypertile_enable_unet": True, "hypertile_max_tile_unet": 128}}
    said = changed_and_back(host, MERGE, tiles, same=True, **WIDE)
    assert "hypertile computes this layer itself" in str(said["Apply ToMe"]["details"])
    said = changed_and_back(host, REUSE, tiles, **WIDE | {"steps": 12})
    assert said["Reuse Steps"]["counts"]["forecast"] > 0
    assert host.draw(MERGE, **WIDE) == merged


def test_nothing_is_in_place_while_it_is_off_and_something_while_it_is_on(host):
    def in_place(arguments):
        return re.search(r"Trouble: ([\w+]+)", host.asked(arguments, steps=2, **trouble(look=True))["info"])[1]

    assert [in_place(off) for off in ((), (False, "Fastest"), (True, "Off"))] == ["nothing"] * 3
    assert {"forward", "func"} <= set(in_place(ALL).split("+"))


def test_switched_off_in_the_middle_of_a_picture(host):
    """By *Extensions*, for the next start, and for the next picture."""
    plain, accelerated, found = host.draw(), host.draw(ALL, steps=20), []
    drawing = threading.Thread(target=lambda: found.extend(host.draw(ALL, steps=20)))
    drawing.start()
    assert until(lambda: host.ask("/sdapi/v1/progress")["state"]["sampling_step"] > 1)
    try:
        host.ask("/sdapi/v1/options", {"disabled_extensions": ["paceline"]})
        assert host.draw((False,)) == plain
    finally:
        drawing.join()
        host.ask("/sdapi/v1/options", {"disabled_extensions": []})
    assert found == accelerated
    assert host.draw() == plain


def measured(host, choice, seeds, **options):
    """Return the pictures, the sheet first, and their texts."""
    answer = host.asked(script_name="Paceline: measure", script_args=[choice, seeds], **options)
    return answer["images"], json.loads(answer["info"])["infotexts"]


def seed_of(text):
    return int(re.search(r"Seed: (\d+)", text)[1])


@pytest.mark.parametrize("options", [{"steps": 20}, {"steps": 20, "batch_size": 2}], ids=["one", "batch"])
def test_each_seed_is_drawn_without_and_with(host, options):
    batch = options.get("batch_size", 1)
    plain = [host.asked(seed=1 + number * batch, **options)["images"][-batch:] for number in range(2)]
    images, texts = measured(host, "Fastest", 2, **options)
    sides = [images[1 + at : 1 + at + batch] for at in range(0, 4 * batch, batch)]
    assert len(images) == len(texts) == 1 + 4 * batch
    assert [seed_of(text) for text in texts[1::batch]] == [1, 1, 1 + batch, 1 + batch]
    assert ["Paceline: Fastest" in text for text in texts[1::batch]] == [False, True, False, True]
    assert 'Paceline measured: "' in texts[0]
    assert re.search(r" a seed change, \S+ in picture \d, the worst of", texts[0])
    first, with_first, second, with_second = (host.pixels(side) for side in sides)
    assert [first, second] == [host.pixels(pictures) for pictures in plain]
    assert first != with_first and second != with_second
    assert host.draw(**options)[-batch:] == first


def test_what_is_no_choice_is_refused(host):
    for choice, seeds in (("Off", 2), ("Fastest", 1)):
        with pytest.raises(urllib.error.HTTPError) as raised:
            measured(host, choice, seeds)
        assert "InvalidSetting" in raised.value.read().decode()


def test_an_interrupt_ends_it_without_a_verdict(host):
    plain, found = host.draw(), []
    measuring = threading.Thread(target=lambda: found.extend(measured(host, "Fastest", 20)[1]))
    measuring.start()
    assert until(lambda: host.ask("/sdapi/v1/progress")["state"]["job_no"] >= 2)
    host.ask("/sdapi/v1/interrupt", {})
    measuring.join()
    assert found and not any("Paceline measured" in text for text in found)
    assert host.draw() == plain


TECHNIQUES = ("Set Attention Processor", "Apply ToMe", "Reuse Steps")


def pixels(file: bytes) -> bytes:
    return Image.open(io.BytesIO(file)).convert("RGB").tobytes()


def test_on_and_off_and_on_again_from_a_picture(host: Host, tmp_path: Path):
    with opened(host, tmp_path / "browser") as page:
        assert not page.is_on
        plain = page.generate()
        assert page.lines() == [] and "Paceline" not in page.infotext()

        page.switch()
        page.choose("Fastest")
        fast = page.generate()
        assert [line.split(": ")[0] for line in page.lines()] == [f"Paceline, {title}" for title in TECHNIQUES]
        assert "Paceline: Fastest" in page.infotext()
        assert pixels(fast) != pixels(plain)
        if PICTURES and host.name == "WEBUI":
            page.picture(ROOT / "docs" / "webui.png")

        page.switch()
        assert pixels(page.generate()) == pixels(plain)
        assert page.lines() == []

        page.choose("Same picture")
        (tmp_path / "fast.png").write_bytes(fast)
        page.restore(tmp_path / "fast.png")
        page.wait(lambda: page.is_on and page.choice == "Fastest", "old choice")
        assert pixels(page.generate()) == pixels(fast)
        assert page.complaints() == []
