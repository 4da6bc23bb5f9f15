"""The math of Reuse Steps: forecasts against what they claim to be, solvers against ComfyUI's, whole runs."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from paceline.optimizers.in_comfyui.comfy_step_reuse import AttentionRoute, ReuseRun
from paceline.optimizers.in_comfyui.run.sampling_run import SamplingRun
from paceline.optimizers.models import samplers
from paceline.optimizers.models.samplers import Place
from paceline.optimizers.step_reuse.history import FORECASTS, Evaluation, History, Passes, lagrange
from paceline.optimizers.step_reuse.long_rule import LongRule
from paceline.optimizers.step_reuse.path import Blocks
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from solving import LEVELS, UPDATES, drive, sample, smooth


@pytest.mark.parametrize("points", [1, 2, 3])
def test_a_polynomial_is_forecast_exactly(points):
    positions, target = [1.0, 2.5, 3.0][:points], 4.25
    for power in range(points):
        found = sum(w * p**power for w, p in zip(lagrange(positions, target), positions, strict=True))
        assert found == pytest.approx(target**power)


@pytest.mark.parametrize("name", sorted(FORECASTS))
def test_every_forecast_knows_a_picture_that_stands_still(name):
    """Denoised and noise both constant: x = D + sigma n. Every forecast must say D."""
    picture, noise = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    history = History()
    for number in range(5):
        place = Place(float(number), LEVELS[number], LEVELS[number + 1])
        history.add(Evaluation(place, picture + place.sigma * noise, picture))
    place = Place(6.0, LEVELS[6], LEVELS[7])
    assert torch.allclose(history.forecast(name, place, picture + place.sigma * noise), picture, atol=1e-4)


@pytest.mark.parametrize("solver", UPDATES)
def test_updates_are_those_of_comfyui(solver, monkeypatch):
    from comfy_host import in_process

    in_process.bootstrap()
    import comfy.k_diffusion.sampling as sampling

    def predict(x, sigma):
        return torch.sin(x / (1 + sigma)) * 2

    def model(x, sigma, **_):
        return predict(x, float(sigma[0]))

    # some solvers ask the model for the scale of its noise; this one has none of its own
    model.inner_model = SimpleNamespace(model_patcher=SimpleNamespace(get_model_object=lambda name: None))
    start = torch.full((1, 4), 9.0)
    expected = getattr(sampling, f"sample_{solver}")(model, start, torch.tensor(LEVELS), disable=True)
    assert torch.allclose(sample(solver, predict), expected, atol=1e-4)


@pytest.mark.parametrize("solver", UPDATES)
def test_what_a_forecast_did_is_taken_back(solver):
    """A prediction that depends on the noise level alone, linearly in the number of the step, is known exactly."""

    def predict(_, sigma):
        return torch.full((1, 4), min(range(20), key=lambda i: abs(LEVELS[i] - sigma)) * 0.1)

    levels, skip = LEVELS[:-1], range(3, 17, 2)  # the very last prediction would be the picture, whatever came before
    full = sample(solver, predict, levels=levels)
    assert (sample(solver, predict, skip, levels=levels) - full).abs().max() > 1e-3
    assert torch.allclose(sample(solver, predict, skip, correct=True, levels=levels), full, atol=1e-5)


@pytest.mark.parametrize("solver", UPDATES)
def test_what_others_do_to_the_latent_is_not_taken_back(solver):
    """Callbacks that move it, and a graded mask that blends another picture into it and into each prediction."""

    def predict(_, sigma):
        return torch.full((1, 4), min(range(20), key=lambda i: abs(LEVELS[i] - sigma)) * 0.1)

    skip, mask = range(3, 17, 2), torch.tensor([[0.0, 0.3, 0.8, 1.0]])
    for others in ({"moved": lambda x, number: x + number}, {"mask": mask, "keep": torch.full((1, 4), -1.0)}):
        full = sample(solver, predict, levels=LEVELS[:-1], **others)
        assert (sample(solver, predict, levels=LEVELS[:-1]) - full).abs().max() > 0.1
        assert torch.allclose(sample(solver, predict, skip, True, LEVELS[:-1], **others), full, atol=1e-4)


def abrupt(x, sigma):
    """Nothing happens until half of the schedule, then everything at once, each time differently."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(int(sigma * 1e6)))
    return smooth(x, sigma) if sigma > 0.7 else smooth(x, sigma) + noise


def test_a_smooth_network_is_left_out_and_an_abrupt_one_is_not():
    run = LongRule(StepReuseSettings(budget=0.05), LEVELS, solver="euler")
    actions, found = drive(run, smooth)
    full = drive(LongRule(StepReuseSettings(budget=0.0), LEVELS), smooth)[1]
    assert actions.count(True) >= 6
    assert (found - full).square().mean().sqrt() < 0.05
    late = drive(LongRule(StepReuseSettings(budget=0.05), LEVELS, solver="euler"), abrupt)[0][12:]
    assert late.count(True) <= 1


def test_a_flow_is_decided_about_as_the_same_run_with_noise_beside_a_picture_of_its_own_size(monkeypatch):
    """The latent of a flow is the other one times ``1 - sigma``, and its noise level is ``sigma / (1 + sigma)``."""
    monkeypatch.setattr(samplers, "FLOW_MARGIN", 1.0)  # the same margin
    levels = [level / (1 + level) for level in LEVELS]
    settings = StepReuseSettings(budget=0.02)
    beside = LongRule(settings, LEVELS, "euler")
    plain = drive(LongRule(StepReuseSettings(budget=0.0), LEVELS), smooth)[1]
    expected, there = drive(beside, smooth)
    flow = LongRule(settings, levels, "euler", flow=True)
    start = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)) * levels[0]

    def predict(x, level):
        return smooth(x / (1 - level), level / (1 - level))

    actions, x = drive(flow, predict, levels, x=start)
    assert actions == expected and expected.count(True) >= 4
    assert torch.allclose(x, there, atol=1e-4) and not torch.allclose(x, plain, atol=1e-4)
    assert flow.outcome.share == pytest.approx(beside.outcome.share, rel=1e-2)


@pytest.mark.parametrize(("steps", "budget", "most"), [(20, 0.05, 2), (50, 0.001, 3), (50, 0.05, 4)])
def test_more_forecasts_follow_each_other_where_a_step_changes_less(steps, budget, most):
    levels = [*torch.linspace(math.log(10.0), math.log(0.05), steps).exp().tolist(), 0.0]
    actions, _ = drive(LongRule(StepReuseSettings(budget=budget), levels, solver="euler"), smooth, levels)
    rows = "".join("f" if action else " " for action in actions).split()
    assert max(map(len, rows)) == most


def test_first_and_last_steps_are_protected_whatever_the_budget():
    actions, _ = drive(LongRule(StepReuseSettings(budget=1.0), LEVELS), smooth)
    assert actions[:5] == [False] * 5 and actions[5] is True
    assert actions[-2:] == [False] * 2


def test_other_passes_than_before_are_computed_and_counted_as_that():
    rule, x, calls, found = LongRule(StepReuseSettings(budget=1.0), LEVELS), torch.zeros(1, 4), [], []
    run = ReuseRun(rule, x.shape, Blocks(torch.nn.Identity()), AttentionRoute(SamplingRun(), {}))
    for number in range(14):
        passes = [x, None] if number < 6 else [x, x]

        def guided(passes=passes):  # Skip Layer Guidance calls the passes one by one in a part of the schedule
            run.passes(passes, x, lambda: calls.append(passes) or passes)
            found.append(rule.skips)
            return x

        run.evaluates(SamplingRun(), None, x, torch.tensor([LEVELS[number]], dtype=torch.float64), guided)
    assert found[5] is True and found[6:9] == [False] * 3
    assert len(calls) == rule.outcome.computed


@pytest.mark.parametrize("solver", [None, *UPDATES])
def test_only_the_beginning_of_an_evaluation_waits_for_the_device(monkeypatch, solver):
    """On fake CUDA tensors any other question raises. What is read there is made up, so that steps are left out."""
    from comfy_host import fake_cuda
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    read, reads = LongRule.read, []

    def answered(rule):
        with unset_fake_temporarily():
            rule.unread.kept[:] = [(tell, torch.full(found.shape, 1e-3)) for tell, found in rule.unread.kept]
            reads.append(len(rule.unread.kept))
            read(rule)

    monkeypatch.setattr(LongRule, "read", answered)
    rule, passes = LongRule(StepReuseSettings(budget=1.0), LEVELS, solver=solver), Passes()
    with fake_cuda.fake_cuda():
        x = torch.empty(1, 4, 8, 8, device="cuda", dtype=torch.float16)
        for number in range(20):
            latent = x.float().clone()
            rule.begin(rule.place_of(LEVELS[number]))
            if rule.skips:
                positive = passes.forecast(rule.method, 0, rule.place, x)[0]
            else:
                positive = x * 0.5
                passes.keep(0, rule.place, latent, [positive, x * 0.4])
                rule.first_pass(positive)
            given = rule.end(latent, positive)
            assert given.device.type == "cuda" and given.dtype == torch.float16
        rule.read()
    assert rule.outcome.forecast >= 6 and sum(reads) >= 20


def test_a_forecast_that_is_refused_costs_nothing():
    rule = LongRule(StepReuseSettings(budget=0.3), LEVELS, "euler")
    actions, _ = drive(rule, smooth, x=torch.ones(1, 4, 8, 8) * LEVELS[0], refused=True)
    assert any(actions) and rule.outcome.forecast == 0 and rule.budget.used == 0


def test_what_was_seen_at_much_noise_foretells_no_row_of_steps_that_draw_the_picture():
    """The ``karras`` levels of a network with zero terminal signal: up to the noise of 28 next to nothing changes."""
    levels = [4518.8, 3316.0, 2397.0, 1708.0, 1196.0, 827.0, 557.0, 366.0, 235.0, 146.0, 87.4, 50.4, 27.7, 14.4, 7.0]
    levels += [3.13, 1.26, 0.443, 0.13, 0.0292, 0.0]
    actions, _ = drive(LongRule(StepReuseSettings(budget=0.15), levels, "euler"), smooth, levels)
    assert any(actions[:8]) and not any(one and other for one, other in pairwise(actions[12:17]))
