"""What Benchmark Sweep does with ``search: plan``: find a plan for Reuse Steps, and say what is measured then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from comfy.samplers import sampler_object

from ..core.errors import InvalidSetting, require_number
from ..core.phrases import joined, phrase, translatable
from ..optimizers.hosts.comfyui.step_reuse import sampler_name
from ..optimizers.step_reuse.plan import Plan
from ..workbench.comfyui.calibration import calibrate, plan_file, save_plan
from ..workbench.sweep import Space

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher
    from ..workbench.comfyui.sampling import SamplingJob


def plan_space(
    model: ModelPatcher, job: SamplingJob, name: str, budget: float, seeds: int, say: Callable[[str], None]
) -> Space:
    """Return the cells that are measured: Reuse Steps without a plan and with the one that is found and saved here.

    Each conditioning of ``positive`` is a prompt by itself: Conditioning (Combine) collects several. A plan that is
    there already for the same budget and steps is not looked for again: a sweep of the same name goes on.

    Args:
        model: MODEL without Reuse Steps.
        job: the picture.
        name: of the plan, one that a preset can have.
        budget: how far the picture of a prompt may move.
        seeds: how many runs the plan is found on at least.
        say: told what is going on.

    Raises:
        InvalidSetting: for a budget above 1, and if the name is that of a plan for something else.
        UnsupportedModel: for conditionings with areas.
    """
    require_number("largest_difference", budget, 0.0, 1.0)
    if not _is_there(model, job, name, budget):
        prompts = job.positive
        count = max(seeds, len(prompts))
        jobs = [
            replace(job, positive=[prompts[number % len(prompts)]], seed=job.seed + number) for number in range(count)
        ]
        title = translatable("looking for a plan")
        found = calibrate(model, jobs, budget, lambda text: say(joined(": ", [title, text])))
        save_plan(name, found)
        say(phrase("plan {name} saved", name=repr(name)))
    return Space({"ReuseSteps.budget": (budget,), "ReuseSteps.plan": ("", name)})


def _is_there(model: ModelPatcher, job: SamplingJob, name: str, budget: float) -> bool:
    path = plan_file(name)
    if not path.is_file():
        return False
    plan = Plan.from_json(path.read_text(encoding="utf-8"))
    sampler = sampler_name(sampler_object(job.sampler_name))
    other = plan.mismatch(type(model.model).__name__, sampler, job.steps, job.cfg)
    if other is None and plan.budget == budget and plan.scheduler == job.scheduler:
        return True
    raise InvalidSetting(
        phrase(
            "There is a plan {name} already: for {title}, budget {budget:g}.",
            name=repr(name),
            title=plan.title,
            budget=plan.budget,
        ),
        phrase("Give study another name, or delete {file}.", file=str(path)),
    )
