"""Reuse Steps in one sampling run: each call for passes is forecast by itself, and the host makes the rest of them.

So guidance, prompts joined by AND, masks, previews and the callbacks of other extensions go on as in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from ....core.calls import Args, Function, Kwargs
from ....core.errors import UnsupportedModel
from ....core.shadow import Shadows
from ...step_reuse.passes import Passes
from ...step_reuse.policy import StepReusePolicy
from ...step_reuse.rule import Action, Rule
from ...step_reuse.settings import StepReuseSettings
from .places import Halves, Place
from .protocols import Denoiser, MultiPrompt, Processing, Scheduled
from .samplers import OWN_LOOPS, Solver, Timesteps, Units
from .technique import WebUITechnique
from .unet import is_unet

UNASKED = "the sampler asked for no evaluation"
OTHER_WORDS = ("cache", "spectrum")
"""Parts of the names of functions that other extensions put in the place of a network's, to leave out steps too."""

Compute = Callable[..., Tensor]
"""Computes a call for passes, given latents, noise levels and what belongs to the prompts."""


class StepReuse(WebUITechnique):
    """Forecasts steps of one run; it outlives a change to the refiner, where all begins anew."""

    policy: StepReusePolicy

    def __init__(self, settings: StepReuseSettings, p: Processing, place: Place, solver: Solver) -> None:
        super().__init__(StepReusePolicy(settings, UNASKED))
        self._p, self._place = p, place
        table = getattr(p.sd_model, "alphas_cumprod", None)
        alphas = table.float().cpu() if isinstance(table, Tensor) else None
        timesteps = Timesteps(alphas) if solver.timesteps and alphas is not None else None
        self._guided_units = timesteps or Units()
        self._pass_units = Units() if timesteps is None or not place.gives_noise else timesteps
        refusals = list(_refusals(place, solver))
        levels = [] if refusals else solver.levels(alphas)
        if not refusals and len(levels) < 2:
            refusals.append(f"the noise levels of the sampler {solver.function} are not known")
        if solver.given.get("extra_args", {}).get("s_min_uncond"):
            refusals.append("Negative Guidance minimum sigma leaves out passes too, in every other step")
        if refusals:
            raise UnsupportedModel(f"Reuse Steps steps aside: {refusals[0]}.", "Use another sampler, or leave it out.")
        self._rule = self.policy.rule_for(levels, solver.name, is_unet(place.network))
        self._passes, self._shapes, self._before = Passes(), list[torch.Size](), list[torch.Size]()
        self._active: Hashable = None
        self._value, self._shape, self._calls = 0.0, torch.Size(), 0
        self._in_pairs = self._joined = False
        self._guidance: float | None = None

    def attach(self, shadows: Shadows) -> None:
        self._place.leave_out_controls(self._forecasts, shadows)

    def moved_to(self, place: Place) -> None:
        """Go on with another network."""
        self._place = place
        if self._rule is not None:
            self._forget(self._rule)

    def guided(self, denoiser: Denoiser, x: Tensor, sigma: Tensor, options: Kwargs, compute: Function) -> Tensor:
        """Return the guided prediction of ``compute``, decided about beforehand and corrected afterwards."""
        rule = self._rule
        if rule is None:
            return cast(Tensor, compute())
        self._value, self._shape, self._calls = float(sigma.flatten()[0]), x.shape, 0
        self._before, self._shapes = self._shapes, []
        self._joined = any(len(image) > 1 for image in getattr(options.get("cond"), "batch", ()))
        level = self._guided_units.sigma(self._value)
        taking_part = (tuple(_prompts(options, denoiser.step)), self._place.taking_part(level))
        if taking_part != self._active:
            self._forget(rule)
            self._active = taking_part
        self._guidance = None
        if self._in_pairs and not denoiser.need_last_noise_uncond and not self._place.passes_are_used():
            self._guidance = self._place.guidance(self._p, float(cast(float, options.get("cond_scale", 1.0))))
        rule.begin(rule.place_of(level), self._guidance)
        latent = self._guided_units.latent(x, self._value)  # before: solvers may change theirs in place
        output = cast(Tensor, compute())
        if self._before and self._before != self._shapes and rule.action is not Action.FORECAST:
            rule.forget()  # the host began or ceased to leave out the negative pass, for example
        if output.shape != x.shape:
            return output
        guided = self._guided_units.denoised(x, output, self._value)
        given = rule.end(latent, guided, held=self._passes.bytes())
        return output if given is guided else self._guided_units.output(x, given, self._value).to(output.dtype)

    def passes(self, compute: Compute, x: Tensor, args: Args, options: Kwargs) -> Tensor:
        """Return the passes of the call ``compute(x, *args, **options)``: computed, in part, or forecast."""
        rule = self._rule
        if rule is None:
            return compute(x, *args, **options)
        slot, units = self._calls, self._pass_units
        latent, halves = units.latent(x, self._value), self._halves(x, options)
        if rule.action is Action.FORECAST:
            if self._forecasts(x):
                self._calls += 1
                self._shapes.append(x.shape)
                denoised = self._passes.forecast(rule.method, slot, rule.place, latent)[0]
                return units.output(x, denoised, self._value).to(x.dtype)
            if slot == 0:
                self._forget(rule)
        self._calls += 1
        if rule.action is Action.SKIP_NEGATIVE and slot == 0 and halves is not None:
            fewer, told = self._place.only(halves[0], (x, *args), options)
            output = self._with_negative(rule, compute(*fewer, **told), x, halves)
        else:
            output = compute(x, *args, **options)
        denoised = units.denoised(x, output, self._value)
        self._passes.keep(slot, rule.place, latent, [denoised])
        self._shapes.append(x.shape)
        self._in_pairs = slot == 0 and halves is not None
        if halves is not None:
            rule.compare(denoised[halves[0]], denoised[halves[1]] if slot == 0 else None)
        return output

    def finish(self) -> None:
        """Read what was measured last."""
        if self._rule is not None:
            self._rule.read()

    def _forecasts(self, x: Tensor) -> bool:
        """Return whether the next call for passes, with latents ``x``, is forecast."""
        rule, slot = self._rule, self._calls
        if rule is None or rule.action is not Action.FORECAST or self._before[slot : slot + 1] != [x.shape]:
            return False
        return self._passes.can(rule.method, slot, [True])

    def _halves(self, x: Tensor, options: Kwargs) -> Halves | None:
        """Return where the passes are in a call for the two of them, of whole pictures and prompts without AND."""
        if self._joined or x.shape[1:] != self._shape[1:]:
            return None
        return self._place.halves(len(x), self._shape[0], options)

    def _with_negative(self, rule: Rule, positive: Tensor, x: Tensor, halves: Halves) -> Tensor:
        """Return both passes, the negative one as what it differed by before."""
        positive_rows, negative_rows = halves
        units = self._pass_units
        negative = rule.negative_from(units.denoised(x[positive_rows], positive, self._value))
        output = positive.new_empty((len(x), *positive.shape[1:]))
        output[positive_rows] = positive
        output[negative_rows] = units.output(x[negative_rows], negative, self._value).to(positive.dtype)
        return output

    def _forget(self, rule: Rule) -> None:
        rule.forget()
        self._passes, self._in_pairs = Passes(), False
        self._before = []


def _refusals(place: Place, solver: Solver) -> Iterator[str]:
    name = OWN_LOOPS.get(solver.function)
    if name is not None:
        yield f"the sampler {name} chooses its noise levels itself"
    functions = [getattr(place.network, name, None) for name in ("forward", "inner_forward")]  # Flux has the latter
    functions += [getattr(place.owner, place.name, None)]
    unet: Any = getattr(place, "unet", None)
    functions += [unet.model_options.get("model_function_wrapper")] if unet is not None else []
    for function in functions:
        function = getattr(function, "__func__", function)
        told = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        if any(word in told.lower() for word in OTHER_WORDS):
            yield f"another extension leaves out steps too ({told})"


def _prompts(options: Kwargs, step: int) -> Iterator[Hashable]:
    """Yield which part of each prompt is drawn in a step, of prompts that change while they are."""
    multi = cast("MultiPrompt | None", options.get("cond"))
    for image in getattr(multi, "batch", ()):
        yield len(image)
        for composed in image:
            yield _part(composed.schedules, step)
    negative: Any = options.get("uncond")
    for schedules in negative if isinstance(negative, list) else ():
        yield _part(schedules, step)


def _part(schedules: list[Scheduled] | Any, step: int) -> int:
    return next((number for number, one in enumerate(schedules) if step <= one.end_at_step), 0)
