"""One sampling run with techniques: from the call of the sampler's function to its end, whatever ends it.

While it runs, attributes of single objects are shadowed: the denoiser's guided prediction, the function that computes
passes, and layers of the network. Nothing else of the host is touched, and nothing stays behind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..attention.attention_policy import AttentionPolicy
from ..core.activity import Summary
from ..core.errors import CannotHelp, UnsupportedModel
from ..core.not_copied import Function, NotCopied
from ..core.phrases import phrase
from ..core.shadow import Shadows
from ..core.technique import ATTENTION, KINDS, STEP_REUSE, TOKEN_MERGING, find
from ..step_reuse.reuse_policy import StepReusePolicy
from ..token_merging.tome_policy import TokenMergingPolicy
from .webui_attention import WebUIAttention
from .webui_models import Denoiser, Processing, model_of
from .webui_samplers import Choose, Position, Thinned, WebUISolver
from .webui_step_reuse import WebUIStepReuse
from .webui_technique import Compute, TechniqueReport, WebUISampling, WebUITechnique
from .webui_token_merging import WebUITokenMerging

SettingsByKind = Mapping[str, Any]
"""The settings of each technique that is wanted, by kind; of attention, the name of the backend."""

Finished = Callable[[Sequence[TechniqueReport]], None]
"""Receives the reports of the techniques when a run is over."""

_MAKERS: Mapping[str, tuple[str, Callable[[Any, WebUISampling], WebUITechnique]]] = {
    ATTENTION: (AttentionPolicy.title, WebUIAttention),
    TOKEN_MERGING: (TokenMergingPolicy.title, WebUITokenMerging),
    STEP_REUSE: (StepReusePolicy.title, WebUIStepReuse),
}


def accelerate(
    p: Processing, settings: SettingsByKind, finished: Finished, refusals: Mapping[str, str] | None = None
) -> None:
    """Let techniques with ``settings`` work in the next sampling run of ``p``, which has made its sampler.

    ``refusals``: why a technique must be left out, by kind, as far as only the host's own settings tell. To call it
    again before the run replaces what was asked for.
    """
    sampler = p.sampler
    inner = sampler.func.inner if isinstance(sampler.func, Accelerated) else sampler.func
    sampler.func = Accelerated(inner, p, settings, finished, refusals or {})


def keep_levels(p: Processing, choose: Choose) -> None:
    """Let the next sampling run of ``p``, which has made its sampler, evaluate only some of its noise levels."""
    sampler = p.sampler
    inner = sampler.func.inner if isinstance(sampler.func, Thinned) else sampler.func
    sampler.func = Thinned(inner, choose)


class Accelerated(NotCopied):
    """A sampler's function, with techniques on while it runs. The host reads its signature through ``__wrapped__``."""

    def __init__(
        self, inner: Function, p: Processing, settings: SettingsByKind, finished: Finished, refusals: Mapping[str, str]
    ) -> None:
        functools.update_wrapper(self, inner)
        self.inner, self.p, self.settings, self._finished, self.refusals = inner, p, settings, finished, refusals

    def __call__(self, model: Denoiser, x: Tensor, *args: Any, **given: Any) -> Any:
        run = _SamplingRun(self, model, WebUISolver.of(self.inner, given), x)
        try:
            with run.shadows:
                run.begin()
                return self.inner(model, x, *args, **given)
        finally:
            self._finished(run.finish())


class _SamplingRun:
    def __init__(self, asked: Accelerated, denoiser: Denoiser, solver: WebUISolver, x: Tensor) -> None:
        self._asked, self._denoiser, self._solver, self._device = asked, denoiser, solver, x.device
        self._position = Position(denoiser)
        self._techniques: list[WebUITechnique] = []
        self._said: list[TechniqueReport] = []
        self._on_network = Shadows()
        self.shadows = Shadows()

    def begin(self) -> None:
        self._guided, self._update = self._denoiser.forward, self._denoiser.update_inner_model
        self.shadows.put_all(self._denoiser, {"forward": self._forward, "update_inner_model": self._changed})
        self.shadows.on_undo(self._on_network.undo)
        self._attach(self._sampling())

    def finish(self) -> list[TechniqueReport]:
        """Return the reports of the run; of a technique that was left out, why."""
        return [*self._said, *(self._ended(technique) for technique in self._techniques)]

    @staticmethod
    def _ended(technique: WebUITechnique) -> TechniqueReport:
        technique.ended()
        return technique.said()

    def _sampling(self) -> WebUISampling:
        model = model_of(self._asked.p.sd_model, self._denoiser, self._solver.timesteps)
        return WebUISampling(self._asked.p, model, self._solver, self._position, self._device)

    def _attach(self, sampling: WebUISampling) -> None:
        """Put techniques on the network: those that go on with it, and new ones."""
        going_on, self._techniques = self._techniques, []
        for kind in KINDS:
            if kind in self._asked.settings:
                technique = find(going_on, kind) or self._made(kind, sampling)
                if technique is not None:
                    self._techniques.append(technique)
                    technique.attach(self._on_network)
        owner, name, network = sampling.model.owner, sampling.model.name, sampling.model.network
        self._compute: Compute = getattr(owner, name)
        self._on_network.put(owner, name, self._passes)
        self._on_network.put(network, "forward", self._prepared(network.forward))

    def _made(self, kind: str, sampling: WebUISampling) -> WebUITechnique | None:
        """Return a new technique, whose run has begun; None for one that is left out, and say why."""
        (title, make), refusal = _MAKERS[kind], self._asked.refusals.get(kind)
        try:
            if refusal is not None:
                raise UnsupportedModel(f"{refusal}.", f"Leave {title} out.", refusal)
            technique = make(self._asked.settings[kind], sampling)
        except CannotHelp as error:
            self._said.append(TechniqueReport(title, Summary("inactive", phrase(error.outcome), details=(str(error),))))
            return None
        technique.began()
        return technique

    def _changed(self) -> None:
        """Go on with another network: a refiner has taken over (``CFGDenoiser.update_inner_model``)."""
        self._on_network.undo()
        self._update()
        sampling, going_on = self._sampling(), []
        for technique in self._techniques:
            if technique.moved_to(sampling.model):
                going_on.append(technique)
                continue
            said = self._ended(technique)
            self._said += [said] if technique.activity.model_calls else []
        self._techniques = going_on
        self._attach(sampling)

    def _forward(self, x: Tensor, sigma: Tensor, *args: Any, **options: Any) -> Tensor:
        """Return the guided prediction (``CFGDenoiser.forward``)."""
        self._position.moved_to(x, sigma, options)
        compute: Compute = functools.partial(self._guided, x, sigma, *args, **options)
        for technique in self._techniques:
            compute = functools.partial(technique.guided, compute, x)
        return compute()

    def _passes(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Return the passes of one call."""
        compute = self._compute
        for technique in self._techniques:
            compute = functools.partial(technique.passes, compute)
        return compute(x, *args, **options)

    def _prepared(self, forward: Function) -> Function:
        """Return ``forward`` of the network, which extensions that cut a picture into tiles call for each of them."""

        def prepared(x: Tensor, *args: Any, **options: Any) -> object:
            for technique in self._techniques:
                technique.before(x)
            return forward(x, *args, **options)

        return prepared
