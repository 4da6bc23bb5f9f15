"""Reuse Steps in one sampling run: each call for passes is forecast by itself, and the host combines the passes.

So guidance, prompts joined by AND, masks, previews and the callbacks of other extensions go on as in every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ....core.calls import Kwargs
from ....core.shadow import Shadows
from ...step_reuse.policy import StepReusePolicy
from ...step_reuse.settings import StepReuseSettings
from .models import WebUIModel
from .protocols import Denoiser
from .samplers import CHOOSES, OWN_LOOPS, Timesteps, WebUISolver
from .step_reuse_run import WebUIReuseRun
from .technique import Compute, Sampling, WebUITechnique
from .unet import is_unet

UNASKED = "the sampler asked for no evaluation"
OTHER_WORDS = ("cache", "spectrum")
"""Parts of the names of functions that other extensions put in the place of a network's, to leave out steps too."""


class WebUIStepReuse(WebUITechnique):
    """Forecasts steps of one run; it outlives a change to the refiner, where all begins anew."""

    policy: StepReusePolicy

    def __init__(self, settings: StepReuseSettings, sampling: Sampling) -> None:
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
        rule = self.policy.rule_for(levels, solver.name, is_unet(model.network), refusals)
        if rule is not None:
            self._run = WebUIReuseRun(rule, self._sampling.p, model, timesteps)

    def ended(self) -> None:
        if self._run is not None:
            self._run.rule.read()
        self._run = None
        super().ended()

    def attach(self, shadows: Shadows) -> None:
        if self._run is not None:
            self._run.model.leave_out_controls(self._run.forecasts, shadows)

    def moved_to(self, model: WebUIModel) -> bool:
        if self._run is not None:
            self._run.move_to(model)
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
