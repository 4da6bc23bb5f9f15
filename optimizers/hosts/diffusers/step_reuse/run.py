"""One run of Reuse Steps on a pipeline: from the first evaluation of a schedule to its last step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....step_reuse.blocks import LEFT_OUT, Blocks
from ....step_reuse.parts import undivided
from ....step_reuse.path import RESIZED
from ....step_reuse.rule import Rule
from ..run import PipelineRun
from .outputs import LastOutputs
from .prediction import NoiseLevels
from .solvers import is_changed
from .step_hook import StepHook


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
            return "the scheduler is given something else than one prediction for one latent"
        if self._shape not in (None, sample.shape):
            return RESIZED
        self._shape = sample.shape
        if is_changed(arguments):
            rule.solver_unknown()
        if not rule.skips and self.blocks.were_left_out():
            return LEFT_OUT
        latent = self._latent_of(scheduler, sample)
        if rule.skips:
            guided = rule.forecast(latent)
        else:
            guided = self.at.denoised(latent, output)
            positive = self.outputs.positive(self.at, latent) if self._guided else None
            if positive is not None:
                rule.first_pass(positive)
        given = rule.end(latent, guided, held=self.outputs.bytes)
        if rule.skips or given is not guided:
            arguments["model_output"] = self.at.output(latent, given).to(output.dtype)
        self.outputs.end()
        return None

    def _latent_of(self, scheduler: Any, sample: Tensor) -> Tensor:
        """Return a latent of the scheduler with the picture at its own size."""
        scaled = getattr(scheduler, "scale_model_input", None)
        wide = sample.float()
        return self.at.latent(wide if scaled is None else scaled(wide, scheduler.timesteps[self.index]))


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
