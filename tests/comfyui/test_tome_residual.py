"""Apply ToMe with ``residual``: the difference that reducing makes, kept in some steps and added in the others."""

from __future__ import annotations

import pytest
from attention_calls import attention_lengths
from cases import often
from distances import relative

METHODS = {
    "kv_downsample": {"method": "kv_downsample", "ratio": 0.75, "max_downsample": "2"},
    "merge": {"method": "merge", "ratio": 0.5, "max_downsample": "2"},
}
KEYS = METHODS["kv_downsample"]
STEPS = 8
"""With these, the first three steps are full where three quarters are left out, and the first two at a half."""


def with_residual(studio, model=None, **settings):
    return studio.tome(model or studio.model, residual="auto", **{**KEYS, **settings})


def outcome(model):
    return policy(model).residuals.counts


def policy(model):
    (technique,) = model.get_attachment("paceline").techniques
    return technique.policy


@pytest.mark.parametrize(
    ("method", "sampler", "times"),
    often(
        [("kv_downsample", "heun", 5), ("merge", "euler", 5)],
        [(method, *of) for method in METHODS for of in (("euler", 5), ("heun", 5), ("dpm_2", 1.2))],
        several=True,
    ),
)
def test_it_is_much_closer_than_reduced_attention_alone(studio, method, sampler, times):
    plain = studio.sample(studio.model, steps=STEPS, sampler=sampler)
    alone, model = (studio.tome(studio.model, residual=one, **METHODS[method]) for one in ("off", "auto"))
    near, far = (relative(studio.sample(one, steps=STEPS, sampler=sampler), plain) for one in (model, alone))
    assert near < far / times
    twice = 2 if sampler in ("heun", "dpm_2") else 1
    calls = STEPS * twice - (twice - 1)  # the last step of the solvers that evaluate twice is Euler's
    full = 3 if method == "kv_downsample" else 2
    assert (outcome(model).full, outcome(model).added) == (full, calls - full)
    report = studio.report(model)
    assert f"residual: {full} of {calls} model calls computed attention both ways" in report
    assert "fallback" not in report and "left out: " not in report


def test_attention_is_computed_both_ways_in_full_steps_only(studio):
    """Another pack's override stays outside, and sees each attention once, as without it."""
    model = studio.tome(studio.model, **{**KEYS, "max_downsample": "1"}, residual="auto")
    seen = attention_lengths(model, lambda one: studio.sample(one, steps=STEPS))
    assert (seen.count((384, 384)), seen.count((384, 96))) == (3 * 3, 5 * 3)  # blocks of that size times steps


def test_passes_one_by_one_give_the_same_image_as_together(studio):
    import comfy.samplers

    def one_by_one(args):
        run = comfy.samplers.calc_cond_batch
        options = {k: v for k, v in args["model_options"].items() if k != "sampler_calc_cond_batch_function"}
        return [run(args["model"], [cond], args["input"], args["sigma"], options)[0] for cond in args["conds"]]

    together, apart = with_residual(studio), with_residual(studio)
    apart.set_model_sampler_calc_cond_batch_function(one_by_one)
    pictures = [studio.sample(one, steps=STEPS) for one in (together, apart)]
    assert relative(*pictures) < 1e-5
    assert (outcome(apart).full, outcome(apart).added) == (6, 10)


def test_regions_of_one_picture_each_have_their_own(studio):
    text = studio.positive[0]
    regions = [
        [text[0] + 0.3 * number, text[1] | {"area": (12, 16, 12 * number, 0), "strength": 1.0}] for number in (0, 1)
    ]
    plain = studio.sample(studio.model, steps=STEPS, positive=regions)
    model, alone = with_residual(studio), studio.tome(studio.model, **KEYS)
    near, far = (relative(studio.sample(one, steps=STEPS, positive=regions), plain) for one in (model, alone))
    assert near < far / 5 and "left out" not in studio.report(model)


class Stopped(Exception):
    pass


def test_an_error_in_the_middle_drops_what_was_kept(studio):
    model, calls = with_residual(studio), []

    def stop(apply, given):
        calls.append(bool(policy(model).residuals._kept))
        if len(calls) == 4:
            raise Stopped
        return apply(given["input"], given["timestep"], **given["c"])

    failing = model.clone()
    failing.set_model_unet_function_wrapper(stop)
    with pytest.raises(Stopped):
        studio.sample(failing, steps=STEPS)
    assert calls == [False, True, True, True]
    assert not policy(model).residuals._kept
