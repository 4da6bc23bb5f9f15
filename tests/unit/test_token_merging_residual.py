"""What is kept of reducing: which steps are full, what is stored, when it is given up."""

from __future__ import annotations

import pytest
import torch
from distances import relative
from paceline.core import devices
from paceline.optimizers.token_merging.residual import Residuals, SamplingStep, where_kept
from paceline.optimizers.token_merging.stored import FullSteps, Store

LEVELS = [*range(20, 0, -1), 0.0]


def full_steps(count, ratio):
    levels = [*range(count, 0, -1), 0]
    return [count - level for level in FullSteps(levels, ratio).levels]


def test_full_steps_are_the_first_and_then_evenly_apart():
    assert full_steps(20, 0.75) == [0, 1, 2, 4, 7, 9, 12, 14, 17]
    assert full_steps(20, 0.35) == [0, 1, 2, 10]
    assert full_steps(20, 0.0) == full_steps(20, 0.2) == [0, 1]
    assert full_steps(8, 0.75) == [0, 1, 2]
    assert full_steps(1, 0.75) == [0] and full_steps(2, 1.0) == [0, 1] and full_steps(0, 1.0) == []


def test_the_others_come_so_many_steps_later_on_average():
    assert FullSteps(LEVELS, 0.75).mean_distance == pytest.approx(15 / 11)
    assert FullSteps(LEVELS, 0.0).mean_distance == 9.5


def test_a_block_must_have_so_many_tokens_that_adding_costs_less_than_it_saves():
    """On a processor every block that presets reduce; elsewhere moving a number costs as much as more operations."""
    assert FullSteps(LEVELS, 0.75).least_tokens() == {"cpu": 32, "": 2048}
    call = Residuals().call(SamplingStep(LEVELS, 0, 20), LEVELS, "both", 0.75)
    given = ((1024, "cpu"), (16, "cpu"), (4096, "meta"), (1024, "meta"))
    assert [call.gains(tokens, torch.device(device)) for tokens, device in given] == [True, False, True, False]


def run(residuals, sigmas, passes="both", active=None, differ=None):
    """Whether each evaluation of a run at these noise levels was full."""
    found = []
    for number, sigma in enumerate(sigmas):
        call = residuals.call(SamplingStep(LEVELS, number, sigma, active and active(sigma)), LEVELS, passes, 0.3125)
        found.append(call.full)
        whole, reduced = torch.full((1, 4, 8), 3.0), torch.full((1, 4, 8), 1.0)
        output = call.attend("block", lambda whole=whole: whole, lambda reduced=reduced: reduced)
        assert torch.equal(output, whole)  # the difference is the same in each step here
    return found


def test_each_part_of_the_schedule_begins_with_a_full_evaluation_wherever_the_solver_goes():
    full = FullSteps(LEVELS, 0.3125).levels
    assert full == [20, 19, 18]
    assert run(Residuals(), [20, 19, 19, 18, 17.5, 17, 1]) == [True, True, False, True, False, False, False]
    assert run(Residuals(), [20, 19, 18, 17, 19, 18, 17]) == [True, True, True, False, True, True, False]  # restart
    assert run(Residuals(), [17, 16]) == [True, False]  # the first ones were left out by another node
    changed = run(Residuals(), [20, 19, 18, 17, 16, 15], active=lambda sigma: sigma > 16)
    assert changed == [True, True, True, False, True, False]


def test_several_calls_for_the_same_conditionings_in_one_evaluation_are_windows():
    residuals = Residuals()
    evaluation = SamplingStep(LEVELS, 0, 20)
    assert residuals.call(evaluation, LEVELS, "both", 0.75) is not None
    assert residuals.call(evaluation, LEVELS, "other", 0.75) is not None
    assert residuals.call(evaluation, LEVELS, "both", 0.75) is None
    assert any("residual left out: several parts" in line for line in residuals.lines())
    assert residuals.call(SamplingStep(LEVELS, 1, 19), LEVELS, "both", 0.75) is None


def test_in_few_steps_it_is_left_out():
    residuals = Residuals()
    assert residuals.call(SamplingStep([4, 3, 2, 1, 0], 0, 4), [4, 3, 2, 1, 0], "both", 0.5) is None
    assert "residual left out: in 4 steps, computing 2 of them both ways costs more" in " ".join(residuals.lines())
    assert residuals.call(SamplingStep(LEVELS, 0, 20), LEVELS, "both", 0.5) is not None


def test_where_memory_runs_out_the_run_goes_on_without(monkeypatch):
    def put(*_):
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Store, "put", put)
    residuals, whole = Residuals(), torch.ones(1, 4, 8)
    call = residuals.call(SamplingStep(LEVELS, 0, 20), LEVELS, "both", 0.3125)
    assert torch.equal(call.attend("block", lambda: whole, lambda: whole / 2), whole)
    assert residuals.call(SamplingStep(LEVELS, 1, 19), LEVELS, "both", 0.3125) is None
    assert "residual left out: memory ran out" in " ".join(residuals.lines())


SIZE = 2 * 32 * 64 * 4
"""Bytes of a difference of the larger blocks here; the smaller have a quarter."""


def kept_in(bytes, monkeypatch):
    """What is added in two blocks with many tokens and two with few, where so many bytes may be held."""
    monkeypatch.setattr("paceline.optimizers.token_merging.stored.total_memory", lambda device: 20 * bytes)
    residuals, generator = Residuals(), torch.Generator().manual_seed(1)
    values = {name: torch.randn(2, 8 if "few" in name else 32, 64, generator=generator) for name in BLOCKS}
    call = residuals.call(SamplingStep(LEVELS, 0, 20), LEVELS, "both", 0.75, 0.0)
    for name, value in values.items():
        call.attend(name, lambda value=value: value, lambda value=value: torch.zeros_like(value))
    call = residuals.call(SamplingStep(LEVELS, 1, 19.5), LEVELS, "both", 0.75, 0.0)
    found = {}
    for name, value in values.items():
        if where_kept(call, name) is not None:
            found[name] = relative(call.attend(name, list, lambda value=value: torch.zeros_like(value)), value)
    assert not call.full and not call.missed
    residuals.settle()
    residuals.drop()
    assert not residuals._kept and not residuals.store._parts
    return found, residuals.store, " ".join(residuals.lines())


BLOCKS = ("many", "few", "few more", "many more")


def test_where_memory_is_short_it_is_kept_in_int8_and_then_for_the_blocks_with_the_most_tokens(monkeypatch):
    found, store, text = kept_in(8 * SIZE, monkeypatch)
    assert found == dict.fromkeys(BLOCKS, 0.0) and store.most == 2.5 * SIZE
    assert "1 of 2 model calls" in text and "MiB)" in text and "left out" not in text
    found, store, text = kept_in(SIZE, monkeypatch)
    assert set(found) == set(BLOCKS) and all(0 < one < 0.01 for one in found.values())
    assert store.most <= SIZE and "MiB in int8)" in text and "left out" not in text
    found, store, text = kept_in(0.55 * SIZE, monkeypatch)
    assert set(found) == {"many", "many more"} and store.most <= 0.55 * SIZE
    assert "residual left out in 2 blocks: all would take more than 0 MiB, 5% of the memory" in text
    assert not kept_in(10, monkeypatch)[0]


def test_a_computer_has_memory():
    assert devices.total_memory(torch.device("cpu")) > 2**28
