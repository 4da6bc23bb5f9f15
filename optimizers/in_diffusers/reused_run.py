"""One run of Reuse Steps on a pipeline: from the first evaluation of a schedule to its last step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ..core.shadow import Shadows
from ..step_reuse.parts import undivided
from ..step_reuse.path import LEFT_OUT, RESIZED, Blocks
from ..step_reuse.rule import Rule
from .noise_levels import NoiseLevels, Prediction, is_changed
from .pipeline_run import PipelineCall, PipelineRun


class StepHook:
    """Stands in the place of ``scheduler.step`` while it has listeners.

    Their ``before_step(scheduler, arguments)`` may change the step's arguments, which it is given by their names;
    ``after_step(scheduler)`` is told when it is over.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._step = scheduler, scheduler.step
        self.__signature__ = inspect.signature(scheduler.step)  # pipelines read which arguments it takes
        self._listeners: list[Any] = []
        self._shadows = Shadows()
        self._shadows.put(scheduler, "step", self)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        bound = self.__signature__.bind(*args, **kwargs)
        for listener in tuple(self._listeners):
            listener.before_step(self._scheduler, bound.arguments)
        result = self._step(*bound.args, **bound.kwargs)
        for listener in tuple(self._listeners):
            listener.after_step(self._scheduler)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the scheduler's own step, for a copy of it."""
        copied = memo.get(id(self._scheduler))
        return self if copied is None else MethodType(type(copied).step, copied)

    def tell(self, listener: Any) -> None:
        self._listeners.append(listener)

    def leave(self, listener: Any) -> None:
        """Remove a listener; without any the scheduler has its own step again."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners:
            self._shadows.undo()


def step_hook_of(scheduler: Any) -> StepHook:
    """Return the hook of a scheduler's steps; the caller must add a listener."""
    found = scheduler.__dict__.get("step")
    return found if isinstance(found, StepHook) else StepHook(scheduler)


class LastOutputs:
    """Outputs of the denoiser in the last evaluation, by the order of its calls; ``given``: whether one was given."""

    def __init__(self) -> None:
        self.given = False
        self._called = 0
        self._kept: list[tuple[tuple[torch.Size, ...], Any]] = []

    def end(self) -> None:
        self._called, self.given = 0, False

    def again(self, call: PipelineCall) -> Any:
        """Return the denoiser's output in the same call of the last evaluation; None if that was another one."""
        number = self._called
        if number >= len(self._kept) or self._kept[number][0] != call.shapes:
            return None
        self._called, self.given = number + 1, True
        return _copied(self._kept[number][1])

    def keep(self, call: PipelineCall, result: Any) -> bool:
        """Keep the denoiser's output; return whether it can be returned again: whether it is one prediction."""
        if _prediction(result) is None:
            return False
        del self._kept[self._called :]
        self._kept.append((call.shapes, _copied(result)))
        self._called += 1
        return True

    def positive(self, at: Prediction, latent: Tensor) -> Tensor | None:
        """Return the positive prediction of an evaluation with both passes; None if they are not from one call."""
        if len(self._kept) != 1:
            return None
        asked, output = self._kept[0][0][0], _prediction(self._kept[0][1])
        if not isinstance(output, Tensor):
            return None
        more = len(asked) == 4 and asked[1] > output.shape[1] and asked[2:] == output.shape[2:]  # channels behind it
        if output.shape != (2 * len(latent), *latent.shape[1:]) or not (asked == output.shape or more):
            return None
        return at.denoised(latent, output.chunk(2)[1])


def _prediction(result: Any) -> Any:
    """Return the one tensor of a result, or its one list of tensors; None where there is something else beside it."""
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, (tuple, list)) else ()
    found = [value for value in values if value is not None]
    tensors = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    known = len(found) == 1 and tensors and all(isinstance(one, Tensor) for one in tensors)
    return found[0] if known else None


def _copied(result: Any) -> Any:
    if isinstance(result, Mapping):
        return type(result)(**{name: _copied(value) for name, value in result.items()})
    if isinstance(result, (tuple, list)):
        return type(result)(map(_copied, result))
    return result.detach().clone() if isinstance(result, Tensor) else result


class ReusedRun:
    """Forecasts the guided prediction, which the scheduler is given.

    Attributes:
        schedule: where the pipeline is.
        outputs: of the denoiser in the evaluation before.
        blocks: of the denoiser.
        open: whether a network was asked, and the scheduler not yet.
        index, at: the step, and the network's kind of prediction there.
    """

    def __init__(self, rule: Rule, levels: NoiseLevels, schedule: PipelineRun, hook: StepHook, blocks: Blocks) -> None:
        self.rule, self.levels, self.schedule, self.hook, self.blocks = rule, levels, schedule, hook, blocks
        self.outputs = LastOutputs()
        self.open = self._guided = False
        self.index, self.at = schedule.number, levels.at(schedule.number)
        self._taking_part = schedule.taking_part
        self._shape: torch.Size | None = None

    def ask(self, guided: bool) -> None:
        """Decide about a step when the first network is asked in it, and anew where others take part.

        ``guided``: whether there is a negative pass.
        """
        self.index = self.schedule.number
        changed = self.schedule.had_fewer or self._taking_part != self.schedule.taking_part
        if self.open and (not changed or self.outputs.given):
            return
        self.open, self.at, self._guided = True, self.levels.at(self.index), guided
        if changed:
            self.rule.forget()
        self._taking_part = self.schedule.taking_part
        self.rule.begin(self.rule.place_of(self.at.sigma))

    def before_step(self, scheduler: Any, arguments: dict[str, Any]) -> str | None:
        """Note the scheduler's input, or put the forecast in its place; return the reason if neither can be done."""
        self.open, self.schedule.stepped = False, True
        rule, output, sample = self.rule, arguments.get("model_output"), arguments.get("sample")
        if not isinstance(output, Tensor) or not isinstance(sample, Tensor) or output.shape != sample.shape:
            return "the scheduler is not given a single prediction for a single latent"
        if self._shape not in (None, sample.shape):
            return RESIZED
        self._shape = sample.shape
        if is_changed(arguments):
            rule.solver_unknown()
        if not rule.skips and self.blocks.were_left_out():
            return LEFT_OUT
        scaled, wide = getattr(scheduler, "scale_model_input", None), sample.float()
        latent = self.at.latent(wide if scaled is None else scaled(wide, scheduler.timesteps[self.index]))
        if rule.skips:
            guided = rule.forecast(latent)
        else:
            guided = self.at.denoised(latent, output)
            positive = self.outputs.positive(self.at, latent) if self._guided else None
            if positive is not None:
                rule.first_pass(positive)
        given = rule.end(latent, guided)
        if rule.skips or given is not guided:
            arguments["model_output"] = self.at.output(latent, given).to(output.dtype)
        self.outputs.end()
        return None


def frames_of(latent: Tensor, channels: int | None, frames: int = 0) -> Sequence[Tensor]:
    """Return a latent, as a scheduler is given it, as one stream ``[batch, frames, ...]``.

    ``channels``: how many the denoiser gives, which stand before the frames or behind them. ``frames``: how many it was
    told there are (0: it was not), where the latent is tokens ``[batch, frames * places, channels]``.
    """
    if latent.ndim == 5:
        behind = latent.shape[2] == channels != latent.shape[1]
        return [latent if behind else latent.movedim(2, 1)]
    if latent.ndim == 3 and frames and latent.shape[1] % frames == 0:
        return [latent.unflatten(1, (frames, -1))]
    return undivided(latent)
