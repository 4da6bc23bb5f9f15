"""What Benchmark Sweep does with ``search: plan``: find a plan for Reuse Steps, and say what is measured then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import require_number
from ..core.phrases import joined, phrase, translatable
from ..optimizers.step_reuse.plan import ROOM
from ..workbench.comfyui.calibration import calibrate, is_saved, save_plan
from ..workbench.sweep import Space

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher
    from ..workbench.comfyui.sampling import SamplingJob


def plan_space(
    model: ModelPatcher, job: SamplingJob, name: str, budget: float, seeds: int, say: Callable[[str], None]
) -> Space:
    """Return the cells that are measured: Reuse Steps without a plan and with the one that is found and saved here.

    The plan is found for a part of the budget that leaves room for other prompts, so that the node follows it in full.
    Each conditioning of ``positive`` is a prompt by itself: Conditioning (Combine) collects several. A plan that is
    there already for the same budget and steps is not looked for again: a sweep of the same name goes on.

    Args:
        model: MODEL without Reuse Steps.
        job: the picture.
        name: of the plan, one that a preset can have.
        budget: of Reuse Steps.
        seeds: how many runs the plan is found on at least.
        say: told what is going on.

    Raises:
        InvalidSetting: for a budget above 1, and if the name is that of a plan for something else.
        UnsupportedModel: for conditionings with areas.
    """
    require_number("largest_difference", budget, 0.0, 1.0)
    if not is_saved(name, model, job, budget / ROOM):
        prompts = job.positive
        count = max(seeds, len(prompts))
        jobs = [
            replace(job, positive=[prompts[number % len(prompts)]], seed=job.seed + number) for number in range(count)
        ]
        title = translatable("looking for a plan")
        found = calibrate(model, jobs, budget / ROOM, lambda text: say(joined(": ", [title, text])))
        save_plan(name, found)
        say(phrase("plan {name} saved", name=repr(name)))
    return Space({"ReuseSteps.budget": (budget,), "ReuseSteps.plan": ("", name)})
