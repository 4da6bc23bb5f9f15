"""Compare Models in a real ComfyUI: a real no-op, a real bug and a real optimization are told apart.

Time is counted in model calls, so that nothing here depends on how fast the machine is.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from cases import often
from comparing import Work


def test_a_no_op_is_called_out(emoji):
    work = Work()
    found = emoji.compare(work.watch(emoji.model), work.watch(emoji.model), clock=work)
    assert found.verdict.state == "no_effect"
    assert found.evidence.speedup.ratio == 1.0
    assert found.unit == "step"
    # One second for the guided pair of predictions; cfg 2 runs them as one batch.
    assert [run.step_seconds for run in found.runs["baseline"]] == [1.0] * 3
    assert [run.sampling_seconds for run in found.runs["optimized"]] == [4.0] * 3


def test_a_real_optimization_has_its_speed_its_price_and_its_activity(emoji):
    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.1)
    sides = work.watch(emoji.model, seconds=1.25), work.watch(tome)
    found = emoji.compare(*sides, clock=work, steps=8)
    assert found.verdict.state == "faster"
    assert found.evidence.speedup.ratio == pytest.approx(1.25)
    assert 0.0 < found.verdict.seed_share < 0.5
    assert [(one.kind, one.steps) for one in found.evidence.controls] == [("fewer_steps", 6), ("late_levels", 6)]
    assert found.verdict.mean_share < found.verdict.seed_share
    assert found.about["activity"]["Apply ToMe"]["text"].startswith("active in 3 of 10 self-attention blocks")
    assert "Apply ToMe" in found.about["reports"]["optimized"]
    assert "No Paceline optimizations" in found.about["reports"]["baseline"]
    assert found.evidence.repeat.rmse == 0.0
    assert found.evidence.seed.rmse > 2 * found.evidence.difference.rmse


def wrong_in_run(model: Any, wrong: int, calls_of_a_run: int, spoil: Any) -> Any:
    """A model whose patch misbehaves in one run only, as a race or a cache that is too old does."""
    clone, calls = model.clone(), count()

    def patch(output: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        if options["block"] != ("output", 5):
            return output
        run = next(calls) // calls_of_a_run  # the first is the warm-up
        return spoil(output) if run == wrong else output

    clone.set_model_attn1_output_patch(patch)
    return clone


def garbage(output: torch.Tensor) -> torch.Tensor:
    return torch.randn(output.shape, generator=torch.Generator().manual_seed(1)) * output.std() * 4


@pytest.mark.parametrize("wrong", often([3], [1, 2, 3]))
def test_garbage_in_one_run_of_three_is_called_out(emoji, wrong):
    """Also when all other runs draw the baseline's very bits, and all are faster."""
    work = Work()
    bad = work.watch(wrong_in_run(emoji.model, wrong, 4, garbage), seconds=0.5)
    found = emoji.compare(work.watch(emoji.model), bad, clock=work)
    assert found.verdict.state == "suspicious"
    assert f"The difference of picture {wrong} is larger than a seed change" in found.verdict.text
    assert not found.evidence.same_bits
    assert found.shown[0] == wrong - 1, "the bad picture is shown first"
