"""What is kept of reducing: which steps are full, what is stored, when it is given up."""

from __future__ import annotations

import pytest
import torch
from distances import relative
from paceline.core import devices
from paceline.optimizers.token_merging import PRESETS, TokenMergingSettings
from paceline.optimizers.token_merging.kv_downsample import EvenDownsampling, KVDownsampling
from paceline.optimizers.token_merging.residual import Evaluation, FullSteps, Residuals

LEVELS = [*range(20, 0, -1), 0.0]


def full_steps(count, share):
    levels = [*range(count, 0, -1), 0]
    return [count - level for level in FullSteps(levels, share).levels]


def test_full_steps_are_the_first_and_then_evenly_apart():
    assert full_steps(20, 0.45) == [0, 1, 2, 4, 7, 9, 12, 14, 17]
    assert full_steps(20, 0.23) == [0, 1, 2, 10]
    assert full_steps(20, 0.0) == full_steps(20, 0.1) == [0, 1]
    assert full_steps(8, 0.45) == [0, 1, 2]
    assert full_steps(1, 0.45) == [0] and full_steps(2, 1.0) == [0, 1] and full_steps(0, 1.0) == []


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.45, 0.6])
def test_any_number_of_steps(share):
    for count in range(60):
        steps = FullSteps([*range(count, 0, -1), 0], share)
        assert len(set(steps.levels)) == len(steps.levels) <= max(2, share * count + 1e-6)
        assert steps.levels == sorted(steps.levels, reverse=True)


def run(residuals, sigmas, passes="both", active=None, differ=None):
    """Whether each evaluation of a run at these noise levels was full."""
    found = []
    for number, sigma in enumerate(sigmas):
        call = residuals.call(Evaluation(LEVELS, number, sigma, active and active(sigma)), LEVELS, passes, 0.75, 0.25)
        found.append(call.full)
        whole, reduced = torch.full((1, 4, 8), 3.0), torch.full((1, 4, 8), 1.0)
        output = call.attend("block", lambda whole=whole: whole, lambda reduced=reduced: reduced)
        assert torch.equal(output, whole)  # the difference is the same in each step here
    return found


def test_each_part_of_the_schedule_begins_with_a_full_evaluation_wherever_the_solver_goes():
    full = FullSteps(LEVELS, 0.75 * 0.25).levels
    assert full == [20, 19, 18]
    assert run(Residuals(), [20, 19, 19, 18, 17.5, 17, 1]) == [True, True, False, True, False, False, False]
    assert run(Residuals(), [20, 19, 18, 17, 19, 18, 17]) == [True, True, True, False, True, True, False]  # restart
    assert run(Residuals(), [17, 16]) == [True, False]  # the first ones were left out by another node
    changed = run(Residuals(), [20, 19, 18, 17, 16, 15], active=lambda sigma: sigma > 16)
    assert changed == [True, True, True, False, True, False]


def test_several_calls_for_the_same_conditionings_in_one_evaluation_are_windows():
    residuals = Residuals()
    evaluation = Evaluation(LEVELS, 0, 20)
    assert residuals.call(evaluation, LEVELS, "both", 0.75, 0.6) is not None
    assert residuals.call(evaluation, LEVELS, "other", 0.75, 0.6) is not None
    assert residuals.call(evaluation, LEVELS, "both", 0.75, 0.6) is None
    assert any("residual left out: several parts" in line for line in residuals.outcome.lines())
    assert residuals.call(Evaluation(LEVELS, 1, 19), LEVELS, "both", 0.75, 0.6) is None


def kept_in(memory, monkeypatch):
    monkeypatch.setattr("paceline.optimizers.token_merging.residual.total_memory", lambda device: memory)
    residuals, values = Residuals(), torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(1))
    call = residuals.call(Evaluation(LEVELS, 0, 20), LEVELS, "both", 0.75, 0.0)
    for place in range(4):
        call.attend(place, lambda: values, lambda: torch.zeros_like(values))
    call = residuals.call(Evaluation(LEVELS, 1, 19.5), LEVELS, "both", 0.75, 0.0)
    assert not call.full
    return [call.attend(place, list, lambda: torch.zeros_like(values)) for place in range(4)], values, residuals


def test_where_memory_is_short_it_is_kept_in_float8_and_then_for_some_blocks_only(monkeypatch):
    size = 2 * 32 * 64 * 4
    found, values, residuals = kept_in(20 * size * 8, monkeypatch)
    assert all(torch.equal(one, values) for one in found) and not residuals.outcome.left_out
    found, values, residuals = kept_in(20 * size * 2, monkeypatch)
    assert torch.equal(found[0], values) and not torch.equal(found[3], values)
    assert all(relative(one, values) < 0.04 for one in found) and residuals.outcome.bytes <= 2 * size
    found, values, residuals = kept_in(20 * size * 0.6, monkeypatch)
    assert relative(found[1], values) < 0.04 and not found[3].any() and residuals.outcome.bytes <= 0.6 * size
    assert any("all differences would take more than 5%" in line for line in residuals.outcome.lines())
    residuals.drop()
    assert not residuals._kept


def test_beside_what_is_kept_the_grid_is_even():
    assert KVDownsampling.beside_residual() is EvenDownsampling
    assert EvenDownsampling.kept_tokens(4, 6, 0.75).tolist() == [0, 2, 4, 12, 14, 16]
    assert EvenDownsampling(4, 6, 0.75).kept == 6
    x = torch.randn(1, 24, 3)
    assert torch.equal(EvenDownsampling(4, 6, 0.75).reduce(x), x[:, [0, 2, 4, 12, 14, 16]])


def test_presets_leave_out_less_where_nothing_is_kept():
    quality = TokenMergingSettings(**PRESETS["quality"])
    assert [quality.ratio_at(level, 1) for level in (1, 2)] == [0.5, 0.0]
    assert [quality.ratio_at(level, 1, with_residual=True) for level in (1, 2)] == [0.75, 0.75]


def test_a_computer_has_memory():
    assert devices.total_memory(torch.device("cpu")) > 2**28
