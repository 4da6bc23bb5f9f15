"""Reuse Steps in one sampling run: each call for passes is forecast by itself, and the host combines the passes.

So guidance, prompts joined by AND, masks, previews and the callbacks of other extensions go on as in every step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..core.not_copied import Args, Kwargs
from ..core.shadow import Shadows
from ..step_reuse.history import Passes
from ..step_reuse.path import LEFT_OUT, RESIZED, Blocks
from ..step_reuse.reuse_policy import StepReusePolicy
from ..step_reuse.reuse_settings import StepReuseSettings
from ..step_reuse.rule import Rule
from .webui_models import WebUIModel
from .webui_samplers import CHOOSES, OWN_LOOPS, Position, Timesteps, Units, WebUISolver
from .webui_technique import Compute, WebUISampling, WebUITechnique

UNASKED = "the sampler asked for no evaluation"
KNOWN_STEPS = "Euler, DDIM, DPM++ 2M"
OTHER_WORDS = ("cache", "spectrum")
"""Parts of the names of functions that other extensions put in the place of a network's, to leave out steps too."""


class WebUIReuseRun:
    """Forecasts the passes of ``model``; ``position``: of the evaluation; ``timesteps``: if the sampler counts so."""

    def __init__(self, rule: Rule, model: WebUIModel, position: Position, timesteps: Timesteps | None) -> None:
        self.rule, self.model, self.blocks, self._position = rule, model, Blocks(model.network), position
        self._guided_units = timesteps or Units()
        self._pass_units = Units() if timesteps is None or not model.gives_noise else timesteps
        self._passes = Passes()
        self._shapes: list[torch.Size] = []  # in the calls for passes of this evaluation so far
        self._before: list[torch.Size] = []  # and of the one before; empty where nothing of that can be used
        self._active: Hashable = None
        self._size: torch.Size | None = None

    def guided(self, compute: Compute, x: Tensor) -> Tensor:
        """Return the guided prediction of ``compute``, decided about beforehand and corrected afterwards."""
        rule, units, position, value = self.rule, self._guided_units, self._position, self._position.now()
        self._before, self._shapes = self._shapes, []
        level = units.sigma(value)
        active = (position.prompts(), self.model.taking_part(level))
        if active != self._active:
            self.forget()
            self._active = active
        if self._size not in (None, x.shape):
            rule.step_aside(RESIZED)
        self._size = x.shape
        rule.begin(rule.place_of(level))
        latent = units.latent(x, value)  # before: solvers may change theirs in place
        output = compute()
        if not self._shapes:
            rule.compute()  # nobody asked for the passes
        if not rule.skips and self.blocks.were_left_out():
            rule.step_aside(LEFT_OUT)
        if self._before and self._before != self._shapes and not rule.skips:
            rule.forget()  # the host began or ceased to leave out the negative pass, for example
        if output.shape != x.shape:
            return output
        guided = units.denoised(x, output, value)
        given = rule.end(latent, guided)
        return output if given is guided else units.output(x, given, value).to(output.dtype)

    def passes(self, compute: Compute, x: Tensor, args: Args, options: Kwargs) -> Tensor:
        """Return the passes of the call ``compute(x, *args, **options)``: computed or forecast."""
        rule, units, position, slot = self.rule, self._pass_units, self._position, len(self._shapes)
        value, images = position.now(), position.size
        latent = units.latent(x, value)
        if rule.skips:
            if self.forecasts(x):
                self._shapes.append(x.shape)
                denoised = self._passes.forecast(rule.method, slot, rule.place, latent)[0]
                return units.output(x, denoised, value).to(x.dtype)
            if slot == 0:
                self.forget()
            rule.compute(some=slot > 0)
        output = compute(x, *args, **options)
        denoised = units.denoised(x, output, value)
        self._passes.keep(slot, rule.place, latent, [denoised])
        self._shapes.append(x.shape)
        if position.joined or x.shape[1:] != images[1:]:  # else a call for whole pictures, of prompts without AND
            return output
        positive = self.model.positive(len(x), images[0], options)
        if positive is not None:
            rule.first_pass(denoised[positive])
        return output

    def forecasts(self, x: Tensor) -> bool:
        """Return whether the next call for passes, with latents ``x``, is forecast."""
        rule, slot = self.rule, len(self._shapes)
        if not rule.skips or self._before[slot : slot + 1] != [x.shape]:
            return False
        return self._passes.can(rule.method, slot, [True])

    def forget(self) -> None:
        self.rule.forget()
        self._passes = Passes()
        self._before = []


class WebUIStepReuse(WebUITechnique):
    """Forecasts steps of one run; it outlives a change to the refiner, where all begins anew."""

    policy: StepReusePolicy

    def __init__(self, settings: StepReuseSettings, sampling: WebUISampling) -> None:
        super().__init__(StepReusePolicy(settings, UNASKED))
        self.policy.known_steps = KNOWN_STEPS
        self._sampling = sampling
        self._run: WebUIReuseRun | None = None

    def began(self) -> None:
        super().began()
        model, solver, units = self._sampling.model, self._sampling.solver, self._sampling.units
        timesteps = units if isinstance(units, Timesteps) else None
        known = timesteps is not None or not solver.timesteps
        levels = [units.sigma(value) for value in solver.values()] if known else []
        refusals = list(_refusals(model, solver))
        if len(levels) < 2 and solver.function not in OWN_LOOPS:
            refusals.append(f"the noise levels of the sampler {solver.function} are not known")
        rule = self.policy.rule_for(levels, solver.name, model.flow, refusals)
        if rule is not None:
            self._run = WebUIReuseRun(rule, model, self._sampling.position, timesteps)

    def ended(self) -> None:
        if self._run is not None:
            self._run.rule.read()
            self._run.blocks.leave()
        self._run = None
        super().ended()

    def attach(self, shadows: Shadows) -> None:
        if self._run is not None:
            self._run.model.leave_out_controls(self._run.forecasts, shadows)

    def moved_to(self, model: WebUIModel) -> bool:
        if self._run is not None:
            run = self._run
            run.blocks.leave()
            run.model, run.blocks = model, Blocks(model.network)
            run.forget()
        return True

    def guided(self, compute: Compute, x: Tensor) -> Tensor:
        return compute() if self._run is None else self._run.guided(compute, x)

    def passes(self, compute: Compute, x: Tensor, /, *args: object, **options: object) -> Tensor:
        return compute(x, *args, **options) if self._run is None else self._run.passes(compute, x, args, options)


def _refusals(model: WebUIModel, solver: WebUISolver) -> Iterator[str]:
    name = OWN_LOOPS.get(solver.function)
    if name is not None:
        yield CHOOSES.format(name=name)
    if solver.given.get("extra_args", {}).get("s_min_uncond"):
        yield "Negative Guidance minimum sigma skips passes too, in every other step"
    functions = [getattr(model.network, name, None) for name in ("forward", "inner_forward")]  # Flux has the latter
    functions += [getattr(model.owner, model.name, None)]
    unet: Any = getattr(model, "unet", None)
    functions += [unet.model_options.get("model_function_wrapper")] if unet is not None else []
    for function in functions:
        function = getattr(function, "__func__", function)
        told = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        if any(word in told.lower() for word in OTHER_WORDS):
            yield f"another extension skips steps too ({told})"
