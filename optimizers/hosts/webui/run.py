"""One sampling run with techniques: from the call of the sampler's function to its end, whatever ends it.

While it runs, attributes of single objects are shadowed: the denoiser's guided prediction, what computes the passes,
and layers of the network. Nothing else of the host is touched, and nothing stays behind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ....core.activity import Summary
from ....core.calls import Function
from ....core.errors import CannotHelp, UnsupportedModel
from ....core.phrases import phrase
from ....core.shadow import Shadows
from ....core.technique import ATTENTION, KINDS, STEP_REUSE, find
from ...attention.policy import AttentionPolicy
from ...step_reuse.policy import StepReusePolicy
from ...token_merging.policy import TokenMergingPolicy
from .attention import UNetAttention
from .places import Place, place_of
from .protocols import Denoiser, Processing
from .samplers import Position, Solver
from .step_reuse import StepReuse
from .technique import Said, WebUITechnique
from .token_merging import UNetTokenMerging

Choice = Mapping[str, Any]
"""The settings of each technique that is wanted, by kind; of attention, the name of the backend."""

Finished = Callable[[Sequence[Said]], None]
"""Is told what the techniques say of a run that is over."""

TITLES = {policy.kind: policy.title for policy in (AttentionPolicy, TokenMergingPolicy, StepReusePolicy)}


def accelerate(p: Processing, choice: Choice, finished: Finished, refusals: Mapping[str, str] | None = None) -> None:
    """Let the techniques of ``choice`` work in the next sampling run of ``p``, which has made its sampler.

    ``refusals``: why a technique must be left out, by kind, as far as only the host's own settings tell. To call it
    again before the run replaces what was asked for.
    """
    sampler = p.sampler
    inner = sampler.func.inner if isinstance(sampler.func, Accelerated) else sampler.func
    sampler.func = Accelerated(inner, p, choice, finished, refusals or {})


class Accelerated:
    """A sampler's function, with techniques on while it runs. The host reads its signature through ``__wrapped__``."""

    def __init__(
        self, inner: Function, p: Processing, choice: Choice, finished: Finished, refusals: Mapping[str, str]
    ) -> None:
        functools.update_wrapper(self, inner)
        self.inner, self._p, self._choice, self._finished, self._refusals = inner, p, choice, finished, refusals

    def __call__(self, model: Denoiser, x: Tensor, *args: Any, **given: Any) -> Any:
        run = _Run(self._p, self._choice, self._refusals, model, Solver.of(self.inner, given), x)
        try:
            with run.shadows:
                run.begin()
                return self.inner(model, x, *args, **given)
        finally:
            self._finished(run.finish())


class _Run:
    def __init__(
        self, p: Processing, choice: Choice, refusals: Mapping[str, str], denoiser: Denoiser, solver: Solver, x: Tensor
    ) -> None:
        self._p, self._choice, self._refusals, self._denoiser, self._solver = p, choice, refusals, denoiser, solver
        self._device = x.device
        self._position = Position(denoiser, solver.timesteps)
        self._techniques: list[WebUITechnique] = []
        self._said: list[Said] = []
        self._on_network = Shadows()
        self.shadows = Shadows()

    def begin(self) -> None:
        self._guided, self._update = self._denoiser.forward, self._denoiser.update_inner_model
        self.shadows.put_all(self._denoiser, {"forward": self._forward, "update_inner_model": self._changed})
        self.shadows.on_undo(self._on_network.undo)
        self._attach()

    def finish(self) -> list[Said]:
        """Return what is said of the run; of a technique that was left out, why."""
        for technique in self._techniques:
            if isinstance(technique, StepReuse):
                technique.finish()
        return [*self._said, *(technique.said() for technique in self._techniques)]

    def _attach(self) -> None:
        place = place_of(self._p.sd_model, self._denoiser, self._solver.timesteps)
        kept = find(self._techniques, STEP_REUSE)
        self._techniques = []
        for kind in KINDS:
            if kind not in self._choice:
                continue
            shadows = Shadows()
            try:
                technique = kept if kind == STEP_REUSE and kept is not None else self._made(kind, place)
                technique.attach(shadows)
            except CannotHelp as error:
                shadows.undo()
                self._leave_out(TITLES[kind], error)
            except BaseException:
                shadows.undo()
                raise
            else:
                self._on_network.on_undo(shadows.undo)
                self._techniques.append(technique)
        self._compute: Callable[..., Tensor] = getattr(place.owner, place.name)
        self._on_network.put(place.owner, place.name, self._passes)
        self._on_network.put(place.network, "forward", self._prepared(place.network.forward))

    def _made(self, kind: str, place: Place) -> WebUITechnique:
        settings, refusal = self._choice[kind], self._refusals.get(kind)
        if refusal is not None:
            raise UnsupportedModel(f"{refusal}.", f"Leave {TITLES[kind]} out.", refusal)
        if kind == STEP_REUSE:
            return StepReuse(settings, self._p, place, self._solver)
        if kind == ATTENTION:
            return UNetAttention(settings, place, self._device)
        return UNetTokenMerging(settings, place, self._position)

    def _leave_out(self, title: str, error: CannotHelp) -> None:
        headline = phrase("{outcome}: {brief}", outcome=error.outcome, brief=error.brief)
        self._said.append(Said(title, Summary("inactive", headline, details=(str(error),))))

    def _changed(self) -> None:
        """Go on with another network: a refiner has taken over (``CFGDenoiser.update_inner_model``)."""
        self._on_network.undo()
        self._update()
        for technique in self._techniques:
            if isinstance(technique, StepReuse):
                technique.moved_to(place_of(self._p.sd_model, self._denoiser, self._solver.timesteps))
            elif technique.activity.model_calls:
                self._said.append(technique.said())
        self._attach()

    def _forward(self, x: Tensor, sigma: Tensor, *args: Any, **options: Any) -> Tensor:
        """Return the guided prediction (``CFGDenoiser.forward``)."""
        self._position.value = sigma
        reuse = find(self._techniques, STEP_REUSE)
        compute = functools.partial(self._guided, x, sigma, *args, **options)
        if not isinstance(reuse, StepReuse):
            return compute()
        return reuse.guided(self._denoiser, x, sigma, options, compute)

    def _passes(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Return the passes of one call."""
        reuse = find(self._techniques, STEP_REUSE)
        if not isinstance(reuse, StepReuse):
            return self._compute(x, *args, **options)
        return reuse.passes(self._compute, x, args, options)

    def _prepared(self, forward: Function) -> Function:
        """Return ``forward`` of the network, which extensions that cut a picture into tiles call for each of them."""

        def prepared(x: Tensor, *args: Any, **options: Any) -> object:
            for technique in self._techniques:
                technique.before(x)
            return forward(x, *args, **options)

        return prepared
