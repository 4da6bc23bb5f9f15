"""The guard without a host: what it reads when, what it decides, and what it remembers."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers import guard as guards
from paceline.optimizers.guard import Guard, Spoiled


class Model:
    """Anything that can be remembered by."""


FINE, BLACK = torch.ones(2, 3), torch.tensor([1.0, float("nan")])


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
