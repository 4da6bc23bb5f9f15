"""Reuse Steps in one sampling run: each call for passes is forecast by itself, and the host combines the passes.

So guidance, prompts joined by AND, masks, previews and the callbacks of other extensions go on as in every step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ....core.shadow import Shadows
from ....core.shared import Args, Kwargs
from ...step_reuse.history import Passes
from ...step_reuse.path import LEFT_OUT, RESIZED, Blocks
from ...step_reuse.policy import StepReusePolicy
from ...step_reuse.rule import Rule
from ...step_reuse.settings import StepReuseSettings
from .models import Denoiser, WebUIModel
from .samplers import CHOOSES, OWN_LOOPS, Timesteps, Units, WebUISolver, prompts_at
from .technique import Compute, WebUISampling, WebUITechnique

UNASKED = "the sampler asked for no evaluation"
OTHER_WORDS = ("cache", "spectrum")
"""Parts of the names of functions that other extensions put in the place of a network's, to leave out steps too."""


@dataclass
class DenoiserCall:
    """One evaluation of the denoiser.

    Attributes:
        value: the noise level or timestep that the sampler asked for.
        shape: of the latents.
        joined: whether an image has several prompts, joined by AND.
        before: shapes in the calls for passes of the evaluation before; empty where nothing of it can be used.
        shapes: those in the calls for passes of this evaluation so far.
    """

    value: float = 0.0
    shape: torch.Size = field(default_factory=torch.Size)
    joined: bool = False
    before: list[torch.Size] = field(default_factory=list)
    shapes: list[torch.Size] = field(default_factory=list)


class WebUIReuseRun:
    """Forecasts passes by ``rule``, with ``model``; ``timesteps``: where the sampler counts in them."""

    def __init__(self, rule: Rule, model: WebUIModel, timesteps: Timesteps | None) -> None:
        self.rule, self.model, self.blocks = rule, model, Blocks(model.network)
        self._guided_units = timesteps or Units()
        self._pass_units = Units() if timesteps is None or not model.gives_noise else timesteps
        self._now, self._passes = DenoiserCall(), Passes()
        self._active: Hashable = None
        self._shape: torch.Size | None = None

    def guided(self, denoiser: Denoiser, x: Tensor, sigma: Tensor, options: Kwargs, compute: Compute) -> Tensor:
        """Return the guided prediction of ``compute``, decided about beforehand and corrected afterwards."""
        rule, units, value = self.rule, self._guided_units, float(sigma.flatten()[0])
        joined = any(len(image) > 1 for image in getattr(options.get("cond"), "batch", ()))
        self._now = now = DenoiserCall(value, x.shape, joined, before=self._now.shapes)
        level = units.sigma(value)
        active = (tuple(prompts_at(options, denoiser.step)), self.model.taking_part(level))
        if active != self._active:
            self.forget()
            self._active = active
        if self._shape not in (None, x.shape):
            rule.step_aside(RESIZED)
        self._shape = x.shape
        rule.begin(rule.place_of(level))
        latent = units.latent(x, value)  # before: solvers may change theirs in place
        output = compute()
        if not now.shapes:
            rule.compute()  # nobody asked for the passes
        if not rule.skips and self.blocks.were_left_out():
            rule.step_aside(LEFT_OUT)
        if now.before and now.before != now.shapes and not rule.skips:
            rule.forget()  # the host began or ceased to leave out the negative pass, for example
        if output.shape != x.shape:
            return output
        guided = units.denoised(x, output, value)
        given = rule.end(latent, guided, held=self._passes.bytes())
        return output if given is guided else units.output(x, given, value).to(output.dtype)

    def passes(self, compute: Compute, x: Tensor, args: Args, options: Kwargs) -> Tensor:
        """Return the passes of the call ``compute(x, *args, **options)``: computed or forecast."""
        rule, units, now, slot = self.rule, self._pass_units, self._now, len(self._now.shapes)
        latent = units.latent(x, now.value)
        if rule.skips:
            if self.forecasts(x):
                now.shapes.append(x.shape)
                denoised = self._passes.forecast(rule.method, slot, rule.place, latent)[0]
                return units.output(x, denoised, now.value).to(x.dtype)
            if slot == 0:
                self.forget()
            rule.compute(some=slot > 0)
        output = compute(x, *args, **options)
        denoised = units.denoised(x, output, now.value)
        self._passes.keep(slot, rule.place, latent, [denoised])
        now.shapes.append(x.shape)
        if now.joined or x.shape[1:] != now.shape[1:]:  # else a call for whole pictures, of prompts without AND
            return output
        positive = self.model.positive(len(x), now.shape[0], options)
        if positive is not None:
            rule.first_pass(denoised[positive])
        return output

    def forecasts(self, x: Tensor) -> bool:
        """Return whether the next call for passes, with latents ``x``, is forecast."""
        rule, slot = self.rule, len(self._now.shapes)
        if not rule.skips or self._now.before[slot : slot + 1] != [x.shape]:
            return False
        return self._passes.can(rule.method, slot, [True])

    def forget(self) -> None:
        self.rule.forget()
        self._passes = Passes()
        self._now.before = []


class WebUIStepReuse(WebUITechnique):
    """Forecasts steps of one run; it outlives a change to the refiner, where all begins anew."""

    policy: StepReusePolicy

    def __init__(self, settings: StepReuseSettings, sampling: WebUISampling) -> None:
        super().__init__(StepReusePolicy(settings, UNASKED))
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
            self._run = WebUIReuseRun(rule, model, timesteps)

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

    def guided(self, denoiser: Denoiser, x: Tensor, sigma: Tensor, options: Kwargs, compute: Compute) -> Tensor:
        return compute() if self._run is None else self._run.guided(denoiser, x, sigma, options, compute)

    def passes(self, compute: Compute, x: Tensor, /, *args: object, **options: object) -> Tensor:
        return compute(x, *args, **options) if self._run is None else self._run.passes(compute, x, args, options)


def _refusals(model: WebUIModel, solver: WebUISolver) -> Iterator[str]:
    name = OWN_LOOPS.get(solver.function)
    if name is not None:
        yield CHOOSES.format(name=name)
    if solver.given.get("extra_args", {}).get("s_min_uncond"):
        yield "Negative Guidance minimum sigma leaves out passes too, in every other step"
    functions = [getattr(model.network, name, None) for name in ("forward", "inner_forward")]  # Flux has the latter
    functions += [getattr(model.owner, model.name, None)]
    unet: Any = getattr(model, "unet", None)
    functions += [unet.model_options.get("model_function_wrapper")] if unet is not None else []
    for function in functions:
        function = getattr(function, "__func__", function)
        told = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        if any(word in told.lower() for word in OTHER_WORDS):
            yield f"another extension leaves out steps too ({told})"
