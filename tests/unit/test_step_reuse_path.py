"""Reuse Steps where a sampler goes otherwise than down its schedule, or something else changes the latent."""

from __future__ import annotations

import math

import pytest
import torch
from paceline.optimizers.hosts.comfyui.runtime.run import SamplingRun
from paceline.optimizers.hosts.comfyui.step_reuse.technique import AttentionRoute, ReuseRun
from paceline.optimizers.step_reuse.path import LEFT_OUT, RESIZED, RISES, TWICE, Blocks
from paceline.optimizers.step_reuse.policy import StepReusePolicy
from paceline.optimizers.step_reuse.rule import MOVED, Rule
from paceline.optimizers.step_reuse.settings import StepReuseSettings

LEVELS = [*torch.linspace(math.log(10.0), math.log(0.05), 20).exp().tolist(), 0.0]
AFTER = "Reuse Steps steps aside"


class Network(torch.nn.Module):
    """Three blocks, of which a step cache may leave out all but the first."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Identity() for _ in range(3))
        self.cached = False

    def forward(self, x):
        for block in list(self.blocks)[: 1 if self.cached else 3]:
            x = block(x)
        return x


def run_of(budget=1.0, solver="euler", shape=(1, 4, 8, 8), network=None):
    rule = Rule(StepReuseSettings(budget=budget), LEVELS, solver)
    route = AttentionRoute(SamplingRun(), {})
    return ReuseRun(rule, torch.Size(shape), Blocks(network or torch.nn.Identity()), route)


def ask(run, x, sigma, asked=True, network=None):
    """Make one evaluation as ComfyUI does; return how it was made."""
    run.begin(sigma, x, ())
    guided = x / (1 + sigma**2) + 0.5
    if asked:
        (guided,) = run.passes(["positive"], x, lambda: [guided if network is None else network(guided)])
    given = run.end(guided)
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


def noise(*shape):
    return torch.randn(shape or (1, 4, 8, 8), generator=torch.Generator().manual_seed(1)) * LEVELS[0]


@pytest.mark.parametrize("solver", ["euler", "heun", None])
def test_a_sampler_that_goes_back_up_is_left_alone_from_there(solver):
    run = run_of(solver=solver)
    before, x = down(run, noise(), LEVELS[:12])
    assert True in before
    again, _ = down(run, x + noise() * 0.2, [2.0, *LEVELS[8:]])
    assert True not in again and f"{RISES}: {AFTER}" in run.rule.outcome.notes


@pytest.mark.parametrize("budget", [0.0, 1.0])
def test_a_latent_of_another_size_is_computed_and_said(budget):
    run = run_of(budget)
    _, x = down(run, noise(), LEVELS[:8])
    larger = torch.nn.functional.interpolate(x, scale_factor=2)
    actions, found = down(run, larger, LEVELS[7:])
    assert set(actions) == {False} and found.shape == larger.shape
    assert run.rule.outcome.notes == [f"{RESIZED}: {AFTER}"]


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


def test_a_schedule_that_rises_inside_is_left_alone():
    policy = StepReusePolicy(StepReuseSettings(budget=1.0), "")
    assert policy.rule_for([*LEVELS[:12], 2.0, *LEVELS[8:]], "euler", False) is None
    assert policy.outcome.notes == ["this schedule adds noise, and steps that do so have no forecast"]


def test_an_evaluation_for_which_nobody_asked_the_passes_is_no_forecast():
    """Another node may answer it without us; then the network was not left out by Reuse Steps."""
    run = run_of()
    actions, _ = down(run, noise(), LEVELS, asked=False)
    assert run.rule.outcome.forecast == 0 and run.rule.outcome.computed == len(actions) == 20


def test_a_cache_is_known_by_blocks_that_did_not_run():
    network, outcomes = Network(), {}
    for starts in (20, 10):
        run = run_of(network=network)

        def begins(x, number, starts=starts):
            network.cached = number >= starts
            return x

        down(run, noise(), LEVELS, begins, network=network)
        network.cached = False
        outcomes[starts] = run.rule.outcome
    assert outcomes[20].notes == [] and outcomes[20].forecast >= 6
    assert outcomes[10].notes == [f"{LEFT_OUT}: {AFTER}"] and outcomes[10].forecast < outcomes[20].forecast
