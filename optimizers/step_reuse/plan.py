"""A plan: which steps of a schedule are computed, forecast, or computed without the negative pass.

It is found by trying plans on recorded runs, and belongs to what it was found for. The budget's rule still watches
over a run with a plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import InvalidSetting, not_allowed, one_of, require_integer, require_number, require_text
from ...core.phrases import phrase, translatable
from .forecasts import FORECASTS

COMPUTE, GUIDANCE = "compute", "guidance"
ACTIONS = (COMPUTE, GUIDANCE, *FORECASTS)
"""What can be done in a step: compute it; compute it without the negative pass; or forecast it, by which forecast."""

FORMAT = 1
ROOM = 2.0
"""A plan is followed on the estimate alone where its own budget is so much smaller than the run's. On prompts that it
was not found on, pictures moved up to 1.7 times as far as its budget: see benchmarks/step_reuse_plans.py.
"""

_LONGEST, _LONGEST_NAME = 500_000, 100
_PASTE = translatable("Paste what the command plan has printed.")


def of_plan(name: str) -> str:
    """Return what a part of a plan is called in errors."""
    return phrase("{name} of the plan", name=name)


@dataclass(frozen=True)
class Plan:
    """What to do in each step of one kind of run.

    Attributes:
        family: class of the model, e.g. ``SDXL``.
        sampler: ComfyUI's or diffusers' name of the solver.
        scheduler: name of the noise schedule, or an empty text where it does not matter.
        guidance: scale of the guidance.
        actions: one of ``ACTIONS`` for each step, in order.
        budget: what it was found for.

    Raises:
        InvalidSetting: if a value is not allowed.
    """

    family: str
    sampler: str
    scheduler: str
    guidance: float
    actions: tuple[str, ...]
    budget: float = 0.05

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("family", "sampler", "scheduler"):  # shown in reports and in the log
            text = require_text(of_plan(name), getattr(self, name))
            if len(text) > _LONGEST_NAME or not text.isprintable():
                remedy = translatable("It must be one line; paste what the command plan has printed.")
                raise not_allowed(of_plan(name), text, remedy)
        require_number(of_plan("guidance"), self.guidance, -1000.0, 1000.0)
        require_number(of_plan("budget"), self.budget, 0.0, 1.0)
        if not isinstance(self.actions, tuple) or not 1 <= len(self.actions) <= 10_000:
            remedy = translatable("It needs one action for each step.")
            raise InvalidSetting(translatable("The plan has no list of actions."), remedy)
        for number, action in enumerate(self.actions):
            if action not in ACTIONS:
                raise not_allowed(phrase("Step {number} of the plan", number=number), action, one_of(ACTIONS))

    @property
    def steps(self) -> int:
        """How many steps the schedule has."""
        return len(self.actions)

    @property
    def title(self) -> str:
        """What it is for, e.g. ``SDXL, dpmpp_2m, 20 steps, guidance 7``."""
        return phrase(
            "{family}, {sampler}, {steps} steps, guidance {guidance:g}",
            family=self.family,
            sampler=self.sampler,
            steps=self.steps,
            guidance=self.guidance,
        )

    def mismatch(self, family: str, sampler: str, steps: int, guidance: float | None) -> str | None:
        """Return why the plan is not for such a run, or None if it is."""
        found = (
            (translatable("model"), self.family, family),
            (translatable("sampler"), self.sampler, sampler),
            (translatable("number of steps"), self.steps, steps),
        )
        for name, wanted, value in found:
            if wanted != value:
                return self._not_for(name, str(value))
        if guidance is not None and abs(guidance - self.guidance) > 1e-6:
            return self._not_for(translatable("guidance"), f"{guidance:g}")
        return None

    def _not_for(self, name: str, value: str) -> str:
        return phrase(
            "the plan is for {title}, and the {name} here is {value}", title=self.title, name=name, value=value
        )

    def leaves_room_in(self, budget: float) -> bool:
        """Return whether the budget of a run has room for other prompts than those that the plan was found on."""
        return self.budget * ROOM <= budget

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan.

        Raises:
            InvalidSetting: if the text is not that of a plan.
        """
        if len(text) > _LONGEST:
            raise InvalidSetting(
                phrase("The plan has {count} characters.", count=len(text)),
                phrase("At most {count} are read; paste what the command plan has printed.", count=_LONGEST),
            )
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            problem: str = translatable("The plan is not JSON.")
            if isinstance(error, json.JSONDecodeError):
                problem = phrase("The plan is not JSON: {error}.", error=str(error))
            raise InvalidSetting(problem, _PASTE) from error
        if not isinstance(found, Mapping):
            raise InvalidSetting(translatable("The plan is not a JSON object."), _PASTE)
        values: dict[str, Any] = dict(found)
        require_integer(of_plan("format"), values.pop("format", None), FORMAT, FORMAT)
        known = set(cls.__dataclass_fields__)
        for name in sorted((set(values) ^ known) - {"budget"}):
            problem = phrase("{name} is unknown in the plan.", name=repr(name))
            if name in known:
                problem = phrase("{name} is missing from the plan.", name=repr(name))
            raise InvalidSetting(problem, phrase("A plan has: format, {names}.", names=", ".join(sorted(known))))
        if isinstance(values["actions"], list):
            values["actions"] = tuple(values["actions"])
        return cls(**values)
