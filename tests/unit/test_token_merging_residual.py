"""What is kept of reducing: which steps are full, what is stored, when it is given up."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.core import devices
from paceline.optimizers.models.families import Block
from paceline.optimizers.token_merging.call import TokenCall
from paceline.optimizers.token_merging.gains import FullSteps
from paceline.optimizers.token_merging.kept import Kept, SamplingStep
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings

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


BLOCK = Block("block", 0, 1)


def called(kept, number, sigma, ratio=0.75, passes="both", taking_part=None):
    """One call of a network that keeps a difference; None where it is left out."""
    record = kept.record(SamplingStep(LEVELS, number, sigma, taking_part), passes, ratio)
    return record and TokenCall(TokenMergingSettings(), (1, 2), kept, record=record)


def run(kept, sigmas, active=None):
    """Whether each evaluation of a run at these noise levels was full."""
    found = []
    for number, sigma in enumerate(sigmas):
        call = called(kept, number, sigma, 0.3125, taking_part=active and active(sigma))
        found.append(call.record.full)
        whole, reduced = torch.full((1, 4, 8), 3.0), torch.full((1, 4, 8), 1.0)
        output = call.attend(BLOCK, lambda whole=whole: whole, lambda reduced=reduced: reduced)
        assert torch.equal(output, whole)  # the difference is the same in each step here
    return found


def test_each_part_of_the_schedule_begins_with_a_full_evaluation_wherever_the_solver_goes():
    full = FullSteps(LEVELS, 0.3125).levels
    assert full == [20, 19, 18]
    assert run(Kept(), [20, 19, 19, 18, 17.5, 17, 1]) == [True, True, False, True, False, False, False]
    assert run(Kept(), [20, 19, 18, 17, 19, 18, 17]) == [True, True, True, False, True, True, False]  # restart
    assert run(Kept(), [17, 16]) == [True, False]  # the first ones were left out by another node
    changed = run(Kept(), [20, 19, 18, 17, 16, 15], active=lambda sigma: sigma > 16)
    assert changed == [True, True, True, False, True, False]


def test_several_calls_for_the_same_conditionings_in_one_evaluation_are_windows():
    kept = Kept()
    assert called(kept, 0, 20) and called(kept, 0, 20, passes="other")
    assert called(kept, 0, 20) is None
    assert any("residual left out: several parts" in line for line in kept.lines())
    assert called(kept, 1, 19) is None


def test_in_few_steps_it_is_left_out():
    kept = Kept()
    assert kept.record(SamplingStep([4, 3, 2, 1, 0], 0, 4), "both", 0.5) is None
    assert "residual left out: in 4 steps, computing 2 of them both ways costs more" in " ".join(kept.lines())
    assert called(kept, 0, 20, 0.5)


def test_where_memory_runs_out_the_run_goes_on_without():
    def full():
        raise torch.cuda.OutOfMemoryError("out of memory")

    kept, whole = Kept(full), torch.ones(1, 4, 8)
    call = called(kept, 0, 20, 0.3125)
    assert torch.equal(call.attend(BLOCK, lambda: whole, lambda: whole / 2), whole)
    assert called(kept, 1, 19, 0.3125) is None
    assert "residual left out: memory ran out" in " ".join(kept.lines())


SIZE = 2 * 32 * 64 * 4
"""Bytes of a difference of the larger blocks here; the smaller have a quarter."""


def kept_in(bytes, monkeypatch):
    """Where a difference is added, of two blocks with many tokens and two with few, and so many bytes may be held."""
    monkeypatch.setattr("paceline.optimizers.token_merging.kept.total_memory", lambda device: 20 * bytes)
    kept, generator, found = Kept(), torch.Generator().manual_seed(1), set()
    values = {name: torch.randn(2, 8 if "few" in name else 32, 64, generator=generator) for name in BLOCKS}
    for number in (0, 1):
        call = called(kept, number, 20 - number / 2)
        for name, value in values.items():
            block, nothing = Block(name, 0, 1), torch.zeros_like(value)
            output = call.attend(block, lambda value=value: value, lambda nothing=nothing: nothing)
            if number and torch.equal(output, value):
                found.add(name)
        assert not call.missed
        call.settle()
    kept.drop_all()
    return found, kept.most, " ".join(kept.lines())


BLOCKS = ("many", "few", "few more", "many more")


def test_where_memory_is_short_it_is_kept_for_the_blocks_with_the_most_tokens(monkeypatch):
    found, most, text = kept_in(8 * SIZE, monkeypatch)
    assert found == {*BLOCKS} and most == 2.5 * SIZE
    assert "1 of 2 model calls" in text and "MiB)" in text and "left out" not in text
    found, most, text = kept_in(2 * SIZE, monkeypatch)
    assert found == {"many", "many more"} and most <= 2 * SIZE
    assert "residual left out in 2 blocks: all would take more than 0 MiB, 5% of the memory" in text
    assert not kept_in(10, monkeypatch)[0]


def test_a_computer_has_memory():
    assert devices.total_memory(torch.device("cpu")) > 2**28
