"""The search draws a workflow with other settings: ComfyUI's executor runs what it proposes, on a trained model."""

from __future__ import annotations

import copy
import itertools
from statistics import fmean
from typing import Any

import pytest
import torch
from executing import Executor
from trials import node


def workflow(comfyui: Executor, icons: Any, **settings: Any) -> dict[str, Any]:
    model, encode = icons
    sampling = {"seed": 3, "steps": 16, "cfg": 3.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    links = {name: [name, 0] for name in ("model", "positive", "negative")}
    return {
        "model": comfyui.give("MODEL", "icons", model),
        "positive": comfyui.give("CONDITIONING", "heart", encode("red heart flat")),
        "negative": comfyui.give("CONDITIONING", "nothing", encode("")),
        "latent": comfyui.give("LATENT", "blank", {"samples": torch.zeros(1, 4, 32, 32)}),
        "sampler": node("KSampler", **links, latent_image=["latent", 0], **sampling | settings),
    }


def asked(prompt: dict[str, Any], **sent: Any) -> dict[str, Any]:
    from paceline.server.search import search_payload

    receivers = [{"node": "sampler", "input": "model"}]
    given = {"prompt": prompt, "receivers": receivers, "faster": 1.0, "choice": "fast", "most": 16}
    return search_payload(given | {"chain": [], "kept": [], "fixed": [], "drawn": []} | sent)


def searched(comfyui: Executor, prompt: dict[str, Any], **sent: Any) -> tuple[dict[str, Any], list[Any]]:
    drawn: list[Any] = []
    while (state := asked(prompt, drawn=drawn, **sent))["prompt"] is not None:
        drawn += comfyui.run(state["prompt"])["paceline_trial"]["paceline_tried"]
    assert state["why_not"] == ""
    return state, drawn


def applied(prompt: dict[str, Any], trade: dict[str, Any]) -> dict[str, Any]:
    """Return a workflow as Keep leaves it."""
    from paceline.workbench.comfyui.prompt import default_values

    made = copy.deepcopy(prompt)
    for edit in trade["edits"]:
        assert made[edit["node"]]["inputs"][edit["input"]] == edit["before"]
        made[edit["node"]]["inputs"][edit["input"]] = edit["after"]
    for number, step in enumerate(trade["steps"]):
        source = made["sampler"]["inputs"]["model"]
        made[f"new {number}"] = node(step["node"], **default_values(step["node"]) | step["inputs"] | {"model": source})
        made["sampler"]["inputs"]["model"] = [f"new {number}", 0]
    return made


def test_what_is_kept_draws_the_pictures_that_were_judged_with_that_much_less_work(comfyui, icons):
    from paceline.workbench.comfyui.work_count import WorkCount

    prompt = workflow(comfyui, icons)
    before = copy.deepcopy(prompt)
    state, drawn = searched(comfyui, prompt)
    assert prompt == before
    best = state["trades"][-1]
    assert best["gain"] > 1.3 and best["worst"] <= 0.15 and best["pictures"] == 3
    assert best["edits"] or best["steps"]
    settings = prompt["sampler"]["inputs"]
    seeds = [{**prompt, "sampler": node("KSampler", **settings | {"seed": seed})} for seed in (3, 4, 5)]
    plain = [comfyui.value(one, ["sampler", 0])["samples"] for one in seeds]
    apart = fmean(float((a - b).square().mean().sqrt()) for i, a in enumerate(plain) for b in plain[:i])
    works, shares = [], []
    for one, reference in zip(seeds, plain, strict=True):
        count = WorkCount()
        one["model"] = comfyui.give("MODEL", f"counted {len(works)}", count.on(icons[0]))
        kept = comfyui.value(applied(one, best), ["sampler", 0])["samples"]
        works.append(count.rows)
        shares.append(float((kept - reference).square().mean().sqrt()) / apart)
    assert max(shares) == pytest.approx(best["worst"], rel=1e-4)
    if all(step["node"] != "EasyCache" for step in best["steps"]):
        assert fmean(32 / work for work in works) == pytest.approx(best["gain"], rel=1e-6)
    assert sum(1 / one["gain"] for one in drawn) + 4 <= 17


def test_nothing_leaves_the_choice(comfyui, icons):
    state, _ = searched(comfyui, workflow(comfyui, icons, steps=12), choice="lossless", most=10)
    assert all(trade["worst"] <= 0.02 for trade in state["trades"])


def test_widgets_that_are_links_are_not_touched(comfyui, icons):
    prompt = workflow(comfyui, icons, steps=["number", 0]) | {"number": node("PrimitiveInt", value=16)}
    assert "no number of steps of its own" in asked(prompt)["why_not"]
    prompt = workflow(comfyui, icons, sampler_name=["name", 0]) | {"name": node("SomeOtherNode")}
    assert {site["input"] for site in asked(prompt | {"sampler": prompt["sampler"]})["sites"]} <= {"steps", "scheduler"}
    fixed = [{"node": "sampler", "input": "steps"}]
    assert "no number of steps of its own" in asked(workflow(comfyui, icons), fixed=fixed)["why_not"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"steps": 8}, "takes only 8 steps"), ({"steps": "many"}, "no number of steps of its own")],
)
def test_what_cannot_be_searched_says_why(comfyui, icons, settings, sentence):
    assert sentence in asked(workflow(comfyui, icons, **settings))["why_not"]


def test_a_part_of_a_schedule_is_left_alone(comfyui, icons):
    prompt = workflow(comfyui, icons)
    inputs = {name: value for name, value in prompt["sampler"]["inputs"].items() if name not in ("seed", "denoise")}
    inputs |= {"noise_seed": 3, "add_noise": "enable", "return_with_leftover_noise": "disable", "start_at_step": 0}
    prompt["sampler"] = node("KSamplerAdvanced", **inputs, end_at_step=10_000)
    assert asked(prompt)["why_not"] == ""
    prompt["sampler"]["inputs"]["start_at_step"] = 5
    assert "no number of steps of its own" in asked(prompt)["why_not"]


def test_custom_sampling_is_changed_where_its_settings_stand(comfyui, icons):
    prompt = workflow(comfyui, icons)
    links = {name: [name, 0] for name in ("model", "positive", "negative")}
    prompt |= {
        "noise": node("RandomNoise", noise_seed=5),
        "guider": node("CFGGuider", **links, cfg=3.0),
        "solver": node("KSamplerSelect", sampler_name="euler"),
        "schedule": node("BasicScheduler", model=["model", 0], scheduler="normal", steps=16, denoise=1.0),
        "sampler": node("SamplerCustomAdvanced", noise=["noise", 0], guider=["guider", 0], sampler=["solver", 0],
                        sigmas=["schedule", 0], latent_image=["latent", 0]),
    }  # fmt: skip
    state = asked(prompt, receivers=[{"node": "guider", "input": "model"}])
    assert {(site["node"], site["input"]) for site in state["sites"]} == {
        ("solver", "sampler_name"), ("schedule", "steps"), ("schedule", "scheduler"),
    }  # fmt: skip
    (found,) = comfyui.run(state["prompt"])["paceline_trial"]["paceline_tried"]
    assert found["gain"] > 1 and 0 < found["share"] < 1 and found["repeat"] == 0


def test_a_seed_that_changes_nothing_is_said(comfyui, icons):
    prompt = workflow(comfyui, icons, denoise=0.0)
    state = asked(prompt)
    shown = comfyui.run(state["prompt"])["paceline_trial"]["paceline_tried"]
    assert "Another seed draws the same picture" in asked(prompt, drawn=shown)["why_not"]


def test_an_inpainted_picture_is_searched_where_it_is_drawn(comfyui, icons):
    mask = torch.zeros(1, 1, 256, 256)
    mask[..., :128] = 1
    latent = {"samples": torch.zeros(1, 4, 32, 32), "noise_mask": mask}
    prompt = workflow(comfyui, icons) | {"latent": comfyui.give("LATENT", "masked", latent)}
    state, drawn = searched(comfyui, prompt, most=10)
    assert state["trades"] and all(0 < one["share"] < 1 for one in drawn if one["share"] is not None)
    plain = comfyui.value(prompt, ["sampler", 0])["samples"]
    kept = comfyui.value(applied(prompt, state["trades"][-1]), ["sampler", 0])["samples"]
    assert torch.equal(plain[..., 20:], kept[..., 20:]) and not torch.equal(plain[..., :12], kept[..., :12])


def test_a_model_that_never_repeats_itself_is_judged_by_how_far_it_is_from_itself(comfyui, icons):
    model, seeds = icons[0].clone(), itertools.count()

    def restless(apply: Any, given: dict[str, Any]) -> torch.Tensor:
        drawn = apply(given["input"], given["timestep"], **given["c"])
        return drawn + 0.3 * torch.randn(drawn.shape, generator=torch.Generator().manual_seed(next(seeds)))

    model.set_model_unet_function_wrapper(restless)
    prompt = workflow(comfyui, icons) | {"model": comfyui.give("MODEL", "restless", model)}
    shown = comfyui.run(asked(prompt, choice="lossless")["prompt"])["paceline_trial"]["paceline_tried"]
    assert shown[0]["repeat"] > 0.02
    assert "The model's own pictures of one seed differ by" in asked(prompt, drawn=shown, choice="lossless")["note"]
