"""The guard without a host: what it reads when, what it decides, and what it remembers."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers import guard as guards
from paceline.optimizers.guard import Guard, Spoiled


class Model:
    """Anything that can be remembered by."""


class Late(guards.AsyncCopy):
    """Numbers that arrive when they are told to."""

    arrived = False

    def ready(self):
        return super().ready() if Late.arrived else None


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setattr(Late, "arrived", False)
    monkeypatch.setattr(guards, "AsyncCopy", Late)
    return Late


FINE, BLACK = torch.ones(2, 3), torch.tensor([1.0, float("nan")])


def test_numbers_that_have_not_arrived_are_not_waited_for(late):
    guard, model = Guard(("sage",), can_begin_again=True), Model()
    for output in (FINE, BLACK, FINE):
        assert not guard.closed(guard.evaluation(model, (1,)), output)
    late.arrived = True
    with pytest.raises(Spoiled):
        guard.evaluation(model, (1,))
    with pytest.raises(Spoiled):  # another pack has swallowed the first
        guard.settle()
    guard.begin_again()
    assert guard.evaluation(model, (1,)).known.exact
    assert list(guard.faults) == [
        "sage gave numbers that are not finite in evaluation 2: the run began again without it"
    ]


def test_without_anybody_who_begins_again_the_run_goes_on_exactly(late):
    guard, model = Guard(("sage",)), Model()
    guard.closed(guard.evaluation(model, (1,)), BLACK)
    late.arrived = True
    assert guard.evaluation(model, (1,)).known.exact
    assert list(guard.faults)[0].endswith("in evaluation 1: from there on the run is without it")


@pytest.mark.parametrize(("far", "wrong"), [(0.1, False), (0.3, True), (float("nan"), True), (float("inf"), True)])
def test_a_layer_is_wrong_beyond_the_tolerance(far, wrong):
    guard, model = Guard(("sage",)), Model()
    evaluation = guard.evaluation(model, (1,))
    exact = torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(0))
    for layer in range(3):
        assert evaluation.next_layer() == layer
        evaluation.compare(layer, exact * (1 + far) if layer == 1 else exact, exact)
    assert guard.closed(evaluation, FINE) == wrong
    assert guard.evaluation(model, (1,)).left == (frozenset({1}) if wrong else frozenset())
    assert guard.evaluation(model, (2,)).left == frozenset()
    assert guard.evaluation(Model(), (1,)).left == frozenset()


def test_a_layer_that_was_given_such_numbers_is_not_wrong():
    guard, model = Guard(("sage",)), Model()
    evaluation = guard.evaluation(model, (1,))
    evaluation.compare(0, BLACK, BLACK)
    assert not evaluation.verdict(evaluation.close(FINE).wait())[1]


def test_only_the_first_evaluation_compares():
    guard, model = Guard(("sage",)), Model()
    assert [guard.evaluation(model, (1,)).compares for _ in range(3)] == [True, False, False]


def test_a_model_that_is_gone_is_forgotten():
    guard, model = Guard(("sage",)), Model()
    guard.evaluation(model, (1,))
    before = len(guards._known)
    del model
    assert len(guards._known) == before - 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_numbers_of_a_gpu_travel_without_waiting():
    guard, model = Guard(("sage",), can_begin_again=True), Model()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            guard.closed(guard.evaluation(model, (1,)), torch.full((2, 3), float("nan"), device="cuda"))
    except Spoiled:  # it was quick
        return
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with pytest.raises(Spoiled):
        guard.settle()
