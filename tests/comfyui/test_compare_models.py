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


def test_weights_under_dynamic_vram_count_as_memory(emoji, monkeypatch):
    import comfy.model_management
    from paceline.workbench.comfyui.machine import beside_the_allocator

    model = emoji.model
    comfy.model_management.unload_all_models()  # all that is loaded counts
    comfy.model_management.load_models_gpu([model])
    assert beside_the_allocator(model) == 0
    monkeypatch.setattr(type(model), "is_dynamic", lambda self: True)
    held = model.model.model_loaded_weight_memory
    monkeypatch.setattr(type(model), "loaded_size", lambda self: held + 5000)  # what its own allocator holds
    assert beside_the_allocator(model) == 5000


def test_a_no_op_is_called_out(emoji):
    work = Work()
    found = emoji.compare(work.watch(emoji.model), work.watch(emoji.model), clock=work, warmup_runs=0)
    assert found.verdict.state == "no_effect"
    assert found.evidence.speedup.ratio == 1.0
    assert found.unit == "step"
    # One second for the guided pair of predictions; cfg 2 runs them as one batch.
    assert [run.step_seconds for run in found.baseline] == [1.0] * 3
    assert [run.sampling_seconds for run in found.optimized] == [4.0] * 3


def test_a_real_optimization_has_its_speed_its_price_and_its_activity(emoji):
    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.1)
    sides = work.watch(emoji.model, seconds=1.25), work.watch(tome)
    found = emoji.compare(*sides, clock=work, steps=8, warmup_runs=0)
    assert found.verdict.state == "faster"
    assert found.evidence.speedup.ratio == pytest.approx(1.25)
    assert 0.0 < found.verdict.seed_share < 0.5
    assert found.evidence.fewer_steps.steps == 6
    assert found.verdict.mean_share < found.verdict.seed_share
    assert found.activity["Apply ToMe"].text.startswith("active in 3 of 10 self-attention blocks")
    assert "Apply ToMe" in found.reports["optimized"]
    assert "No Paceline optimizations" in found.reports["baseline"]
    assert found.evidence.repeat.rmse == 0.0
    assert found.evidence.seed.rmse > 2 * found.evidence.difference.rmse


def wrong_in_run(model: Any, wrong: int, calls_of_a_run: int, spoil: Any, before: int = 0) -> Any:
    """A model whose patch misbehaves in one run only, as a race or a cache that is too old does."""
    clone, calls = model.clone(), count()

    def patch(output: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        if options["block"] != ("output", 5):
            return output
        run = next(calls) // calls_of_a_run + 1 - before
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
    found = emoji.compare(work.watch(emoji.model), bad, clock=work, warmup_runs=0)
    assert found.verdict.state == "suspicious"
    assert f"The difference of picture {wrong} is larger than a seed change" in found.verdict.text
    assert not found.evidence.same_bits and found.latent_change > 0.1
    assert found.shown[0] == wrong - 1, "the bad picture is shown first"


def spoiled(model: Any, spoil: Any) -> Any:
    """A model whose predictions go through ``spoil``."""

    def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
        return spoil(apply(arguments["input"], arguments["timestep"], **arguments["c"]), arguments)

    clone = model.clone()
    clone.set_model_unet_function_wrapper(wrapper)
    return clone


@pytest.mark.parametrize("wrong", often([2], [0, 2]))
def test_one_wrong_picture_of_a_batch_is_called_out_and_named(emoji, wrong):
    """The average over the batch would hide it."""
    from paceline.workbench.comfyui.comparison import record, summary_lines

    def spoil(output, arguments):
        output = output.clone()
        for chunk in range(len(arguments["cond_or_uncond"])):
            output[3 * chunk + wrong] = garbage(output[3 * chunk + wrong])
        return output

    batch = {"samples": torch.zeros(3, 4, 16, 16)}
    found = emoji.compare(emoji.model, spoiled(emoji.model, spoil), latent=batch, runs=2, warmup_runs=0)
    assert found.verdict.state == "suspicious"
    saved = record(found)["farthest"]
    run, place = divmod(saved["picture"] - 1, 3)
    assert (saved["run"], place) == (run + 1, wrong), "of two seeds with three pictures each"
    assert f"picture {saved['picture']} " in found.verdict.text
    assert saved["distance"]["rmse"] > 1.2 * record(found)["difference"]["rmse"] > 0
    assert f"picture {saved['picture']}: PSNR" in "\n".join(summary_lines(found))
    right = emoji.compare(emoji.model, emoji.model.clone(), latent=batch, runs=2, warmup_runs=0)
    assert right.verdict.quality == "identical"


def test_not_a_number_in_one_run_is_called_broken(emoji):
    bad = wrong_in_run(emoji.model, 2, 2, lambda output: output * float("nan"))
    found = emoji.compare(emoji.model, bad, warmup_runs=0, steps=2)
    assert found.verdict.state == "broken"
    assert "The optimized image 2 of 3 has values that are not numbers" in found.verdict.text
    bad = wrong_in_run(emoji.model, 1, 2, lambda output: output * float("nan"), before=1)
    assert emoji.compare(bad, emoji.model, runs=1, warmup_runs=0, steps=2).verdict.text.startswith("The baseline's")
