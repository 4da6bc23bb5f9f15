"""Reuse Steps where a sampler asks otherwise than once a level, or something else changes the latent."""

from __future__ import annotations

import torch
from paceline.optimizers.in_comfyui.comfy_step_reuse import AttentionRoute, ReuseRun
from paceline.optimizers.in_comfyui.run.sampling_run import SamplingRun
from paceline.optimizers.step_reuse.long_rule import MOVED, LongRule
from paceline.optimizers.step_reuse.path import TWICE, Blocks
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from solving import LEVELS

AFTER = "Reuse Steps is off for the rest of the run"


def run_of(budget=1.0):
    rule = LongRule(StepReuseSettings(budget=budget), LEVELS, "euler")
    return ReuseRun(rule, torch.Size((1, 4, 8, 8)), Blocks(torch.nn.Identity()), AttentionRoute(SamplingRun(), {}))


def ask(run, x, sigma, asked=True):
    """Make one evaluation as ComfyUI does; return how it was made."""

    def compute():
        guided = x / (1 + sigma**2) + 0.5
        return run.passes(["positive"], x, lambda: [guided])[0] if asked else guided

    given = run.evaluates(SamplingRun(), None, x, torch.tensor([sigma], dtype=torch.float64), compute)
    return run.rule.skips, given


def down(run, x, levels, change=None, **asked):
    """Follow Euler down ``levels``; ``change(x, number)`` is made between two steps."""
    actions = []
    for number, (sigma, ahead) in enumerate(zip(levels, levels[1:], strict=False)):
        action, given = ask(run, x, sigma, **asked)
        actions.append(action)
        x = x * (ahead / sigma) + given * (1 - ahead / sigma)
        x = x if change is None else change(x, number)
    run.rule.read()
    return actions, x


def noise():
    return torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)) * LEVELS[0]


def test_two_tiles_at_one_noise_level_are_computed_and_said():
    run = run_of()
    for sigma in LEVELS[:14]:
        for tile in (noise(), -noise()):
            assert ask(run, tile, sigma)[0] is False
    assert run.rule.outcome.notes == [f"{TWICE}: {AFTER}"]
    assert run.rule.outcome.computed == 28


def test_noise_that_a_known_sampler_adds_makes_the_rule_careful():
    """A mask that other code blends touches a part of the latent: what the solver does to the rest is still known."""
    draw = torch.Generator().manual_seed(2)

    def noisy(x, number):
        return x + torch.randn(x.shape, generator=draw) * 0.3 * LEVELS[number + 1]

    def kept(x, number):
        return torch.where(torch.arange(8) < 3, 7.0, x)

    plain, forecasts = run_of(0.15), {}
    for name, change in ("plain", None), ("noisy", noisy), ("kept", kept):
        run = plain if change is None else run_of(0.15)
        forecasts[name] = down(run, noise(), LEVELS, change)[0].count(True)
        assert (MOVED in run.rule.outcome.notes) == (run.rule.outcome.measured is False) == (name == "noisy")
    assert forecasts["noisy"] < forecasts["plain"]


def test_an_evaluation_for_which_nobody_asked_the_passes_is_no_forecast():
    """Another node may answer it without us; then the network was not left out by Reuse Steps."""
    run = run_of()
    actions, _ = down(run, noise(), LEVELS, asked=False)
    assert run.rule.outcome.forecast == 0 and run.rule.outcome.computed == len(actions) == 20
