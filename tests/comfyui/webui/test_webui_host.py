"""Techniques in Stable Diffusion WebUI and Forge, by stand-ins of their objects around ComfyUI's real UNet."""

import inspect
from types import SimpleNamespace

import pytest
import torch
import webui_stand_ins as hosts
from cases import often
from comfy_host import checkpoints, in_process
from paceline.optimizers.core.technique import ATTENTION, TOKEN_MERGING
from paceline.optimizers.in_webui import keep_levels
from paceline.optimizers.in_webui.webui_technique import WebUITechnique
from paceline.optimizers.token_merging.tome_settings import METHODS, TokenMergingSettings
from reusing import outcome, reuse
from webui_drawing import BOTH_HOSTS, LOOSE, MERGE, SIZE, Host, shadowed

pytestmark = pytest.mark.usefixtures("untouched")


@BOTH_HOSTS
def test_without_techniques_the_stand_ins_draw_what_comfyui_draws(host, studio):
    expected = studio.sample(studio.model, SIZE, steps=12)
    torch.testing.assert_close(host.draw(), expected, rtol=1e-3, atol=1e-3)


REDUCED = [{"method": method, "ratio": 0.5, "merge_mlp": method == "merge", "residual": "off"} for method in METHODS]
KEPT = {"method": "kv_downsample", "ratio": 0.75, "residual": "auto"}


@pytest.mark.parametrize("settings", often([KEPT], [*REDUCED, KEPT]), ids=str)
def test_tokens_are_reduced_and_the_difference_is_kept_as_in_comfyui(host, studio, settings):
    plain, merged = host.draw(steps=8), host.draw({TOKEN_MERGING: TokenMergingSettings(**settings)}, steps=8)
    expected = studio.sample(studio.tome(studio.model, **settings), SIZE, steps=8)
    torch.testing.assert_close(merged, expected, rtol=1e-3, atol=1e-3)
    assert host.lines == ["Paceline Apply ToMe: active in 2 of 3 self-attention blocks"]
    assert ("residual: 3 of 8" in " ".join(host.said[-1].summary.details)) == (settings is KEPT)
    assert torch.equal(host.draw(steps=8), plain)


@BOTH_HOSTS
def test_steps_are_reused_as_often_as_in_comfyui(host, studio):
    """By the rule of many steps, and by that of few."""
    for steps in (16, 10):
        found = host.draw(LOOSE, steps=steps)
        model = reuse(studio, studio.model, budget=1.0)
        expected = studio.sample(model, SIZE, steps=steps)
        counts = outcome(model)
        assert host.said[-1].summary.counts["computed"] == counts.computed
        assert host.said[-1].summary.counts["forecast"] == counts.forecast > 0
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("sampler", ["euler", hosts.ddim], ids=["noise levels", "timesteps"])
def test_a_run_without_late_levels_evaluates_the_others_of_the_same_schedule(host, sampler):
    def seen(*scripts):
        found, drawing = [], host.drawing()
        watch = host.studio.model.model.diffusion_model.register_forward_pre_hook(
            lambda _, args: found.append(float(args[1][0]))
        )
        host.draw(sampler=sampler, drawing=drawing, scripts=scripts, steps=8)
        watch.remove()
        return found

    whole, asked = seen(), []

    def choose(steps):
        asked.append(steps)
        return [0, 1, 2, 3, 4, 6]

    thinned = lambda p: keep_levels(p, choose)  # noqa: E731
    assert seen(thinned, thinned) == [*whole[:5], whole[6]]  # Forge asks twice
    assert asked == [8] and len(whole) == 8
    assert seen(lambda p: keep_levels(p, lambda steps: None)) == whole == seen()


def test_batches_prompts_of_other_lengths_and_joined_prompts(host, studio):
    longer = hosts.always(in_process.random_conditioning(studio.model, tokens=154, seed=3))
    other = hosts.always(in_process.random_conditioning(studio.model, seed=4))
    cases = [
        {"batch": 2},
        {"prompts": hosts.prompts(longer)},
        {"prompts": hosts.prompts([*host.positive, *other], [*other, *host.positive]), "batch": 2},
    ]
    for case in cases:
        assert torch.isfinite(host.draw(MERGE | LOOSE, **case)).all()
        assert all(said.summary.state == "active" for said in host.said), host.lines


@pytest.mark.parametrize(
    ("host", "error"), [("webui", hosts.Interrupted()), ("forge", RuntimeError("out of memory"))], indirect=["host"]
)
def test_after_an_interrupt_or_an_error_the_next_picture_is_the_old_one(host, error, monkeypatch):
    plain, drawing, ends = host.draw(), host.drawing(), []
    drawing.stopped_by = error
    for end in ("began", "ended"):
        monkeypatch.setattr(WebUITechnique, end, lambda technique, end=end: ends.append((technique.kind, end)))
    with pytest.raises(type(error)):
        host.draw(MERGE | {ATTENTION: "vanilla"}, drawing=drawing, stop_at=7)
    assert ends == [(kind, end) for end in ("began", "ended") for kind in (ATTENTION, TOKEN_MERGING)]
    monkeypatch.undo()
    with pytest.raises(type(error)):
        host.draw(LOOSE, drawing=drawing, stop_at=7)
    denoiser = drawing.sampler.model_wrap_cfg
    assert "forward" not in denoiser.__dict__ and "update_inner_model" not in denoiser.__dict__
    assert torch.equal(host.draw(), plain)
    assert len(host.said) == 3  # reports up to there


def test_a_script_that_clones_after_us_copies_nothing_of_ours(studio):
    host = Host(studio, forge=True)

    def clone(p):
        p.sd_model.forge_objects.unet = p.sd_model.forge_objects.unet.clone()

    drawing = host.drawing()
    expected = host.draw(MERGE | LOOSE)
    plain_sample = drawing.sample

    def sample(function, x, positive, negative, before, **options):
        return plain_sample(function, x, positive, negative, [*before, clone], **options)

    drawing.sample = sample
    assert torch.equal(host.draw(MERGE | LOOSE, drawing=drawing), expected)


def test_controlnets_are_left_out_too_in_forecast_steps(studio):
    host = Host(studio, forge=True)
    drawing = host.drawing()
    control = drawing.sd_model.forge_objects.unet.controlnet_linked_list = hosts.Control()
    host.draw(LOOSE, drawing=drawing)
    counts = host.said[-1].summary.counts
    assert counts["forecast"] > 0
    assert control.calls == counts["computed"]
    assert "get_control" not in control.__dict__


def test_a_refiner_that_takes_over_gets_the_techniques(host):
    refiner = checkpoints.smallest_unet(seed=5, levels=2)
    before = shadowed(refiner.model.diffusion_model)
    host.draw(MERGE, drawing=host.drawing(refiner=refiner, refiner_step=8), steps=16)
    assert host.lines == ["Paceline Apply ToMe: active in 2 of 3 self-attention blocks"] * 2
    assert [said.summary.counts["model_calls"] for said in host.said] == [8, 8]
    host.draw(LOOSE, drawing=host.drawing(refiner=refiner, refiner_step=8), steps=16)
    assert host.said[-1].summary.counts["forecast"] > 0
    assert shadowed(refiner.model.diffusion_model) == before


@pytest.mark.thorough
def test_the_layout_of_sdxl(host, studio, sdxl):
    host.studio = SimpleNamespace(model=sdxl)
    prompt, negative = (hosts.always(in_process.random_conditioning(sdxl, seed=seed)) for seed in (1, 2))
    host.draw(MERGE | LOOSE, prompts=hosts.prompts(prompt), negative=[negative[0].schedules], steps=10)
    assert host.lines[0] == "Paceline Apply ToMe: active in 10 of 70 self-attention blocks"
    assert host.said[1].summary.counts["forecast"] > 0


@BOTH_HOSTS
@pytest.mark.parametrize("what", ["prompt", "negative"])
def test_where_a_pass_changes_nothing_older_is_reused(host, studio, what):
    """Prompt editing, and the hosts' setting to ignore the negative prompt in early steps: three are computed then."""
    later = hosts.always(studio.negative)[0].schedules[0]
    edited = [hosts.Composed([hosts.Part(7, host.positive[0].schedules[0].cond), later], 1.0)]
    given = {"prompts": hosts.prompts(edited)} if what == "prompt" else {"skip_early": 8}
    places, drawing = [], host.drawing()
    watch = studio.model.model.diffusion_model.register_forward_hook(
        lambda *_: places.append(drawing.sampler.model_wrap_cfg.step)
    )
    host.draw(LOOSE, drawing=drawing, steps=20, **given)
    watch.remove()
    assert {8, 9, 10} <= set(places) and len(set(places)) < 20


def test_signatures_stay_those_of_the_sampler(host):
    """The hosts ask the sampler's function what it takes. Scripts are called twice, here before and after us."""
    seen = []
    host.draw(MERGE, scripts=[lambda p: seen.append(inspect.signature(p.sampler.func))], steps=1)
    assert len(seen) == 2 and seen[0] == seen[1]


def test_the_report_names_samplers_as_this_host_does(host):
    host.draw(LOOSE, sampler="euler_ancestral", steps=8)
    assert "(Euler, DDIM, DPM++ 2M)" in str(host.said[-1].summary.details)
