"""Plans as files beside the presets, by name."""

from __future__ import annotations

from pathlib import Path

from ....core.errors import InvalidSetting
from ....core.files import write_atomically
from ....core.phrases import phrase, translatable
from ....optimizers.hosts.comfyui.paths import user_folder
from ....optimizers.hosts.comfyui.protocols import ModelPatcher
from ....optimizers.hosts.comfyui.step_reuse import sampler_name
from ....optimizers.step_reuse.plan import Plan
from ...recipe import PRESET_NAME
from ..sampling import SamplingJob
from .calibrate import Calibration


def plan_file(name: str) -> Path:
    """Return the file of a plan; it need not exist."""
    return user_folder("plans", f"{name}.json")


def save_plan(name: str, found: Calibration) -> Path:
    """Write a plan beside the presets, and return its file."""
    path = plan_file(name)
    write_atomically(path, lambda temporary: temporary.write_text(found.plan.to_json() + "\n", encoding="utf-8"))
    return path


def plan_text(given: str) -> str:
    """Return the JSON of what the input ``plan`` of Reuse Steps was given: the JSON itself, or the name of a file.

    Raises:
        InvalidSetting: if there is no such file.
    """
    text = given.strip()
    if not PRESET_NAME.fullmatch(text):
        return text
    try:
        return plan_file(text).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise InvalidSetting(
            phrase("There is no plan {name}.", name=repr(text)),
            translatable("Find one with Benchmark Sweep (search: plan) or the command plan, or paste its JSON."),
        ) from error


def is_saved(name: str, model: ModelPatcher, job: SamplingJob, budget: float) -> bool:
    """Return whether there is a plan of that name, for such runs and that budget.

    Raises:
        InvalidSetting: if it is for something else.
    """
    from comfy.samplers import sampler_object

    path = plan_file(name)
    if not path.is_file():
        return False
    plan = Plan.from_json(path.read_text(encoding="utf-8", errors="replace"))
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
