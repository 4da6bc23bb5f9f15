"""What one ordinary sampling run has shown, and what Reuse Steps would have done to it, without an evaluation.

Of fewer steps a run tells nothing: the predictions along its path are smooth, and what a longer step makes of them is
the network's answer to other latents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from ..optimizers.models.samplers import Calibration, Place, Solver, sampler_of
from ..optimizers.step_reuse.budget import Budget
from ..optimizers.step_reuse.parts import Blend, Split, contrast, rms, stream_rms
from ..optimizers.step_reuse.reuse_policy import StepReusePolicy
from ..optimizers.step_reuse.reuse_settings import StepReuseSettings

ENTRIES = 4096
"""For each item of a batch; root mean squares over them are those of the whole within two percent."""

FEWEST = 512
"""For each part that is judged by itself, a frame for example, however many there are."""


class Subsample:
    """Takes a few thousand entries of latents of one shape, ``[batch, ...]``, always the same ones.

    So all of a run can be kept. ``split`` divides the entries into the parts of the rule.

    What is linear in the values of one entry (forecasts, the steps of solvers, guidance) is the same on a sketch.
    """

    def __init__(self, shape: Sequence[int], split: Split) -> None:
        batch, item = shape[0], prod(shape[1:])
        streams = split(torch.arange(item).view(1, *shape[1:]))  # [1, frames, ...]
        each = max(FEWEST, ENTRIES // sum(stream.shape[1] for stream in streams))
        chosen = [_some(stream.flatten(2)[0], each) for stream in streams]  # [frames, entries]
        self._shapes = [tuple(part.shape) for part in chosen]
        columns = torch.cat([part.flatten() for part in chosen])
        self._places = (torch.arange(batch)[:, None] * item + columns).flatten()
        self._there: dict[torch.device, Tensor] = {}
        self._batch = batch

    def of(self, latent: Tensor) -> Tensor:
        """Return the entries, float32 ``[batch, entries]``; waits for the device in the first call only."""
        places = self._there.get(latent.device)
        if places is None:
            places = self._there[latent.device] = self._places.to(latent.device)
        return latent.reshape(-1).index_select(0, places).float().view(self._batch, -1)

    def split(self, sketch: Tensor) -> list[Tensor]:
        """Return the parts of a sketch as the latent's own split would, ``[batch, frames, entries]`` each."""
        flat = sketch.split([prod(shape) for shape in self._shapes], 1)
        return [part.unflatten(1, shape) for part, shape in zip(flat, self._shapes, strict=True)]


@dataclass
class RecordedEvaluation:
    """One evaluation, as sketches ``[batch, entries]``: the network's input, and what it predicted without noise.

    ``positive``: the positive pass that ``guided`` was made of; None where other code makes it. ``anew``: other prompts
    or ControlNets take part than in the one before. ``whole``: the input itself, where it can be evaluated again.
    """

    sigma: float
    latent: Tensor
    guided: Tensor
    positive: Tensor | None = None
    anew: bool = False
    whole: Tensor | None = None

    def to_cpu(self) -> None:
        for name in ("latent", "guided", "positive", "whole"):
            there = getattr(self, name)
            setattr(self, name, None if there is None else there.cpu())


Point = tuple[int, float, Tensor]
"""The number of an evaluation, its noise level and its input, on the CPU."""


@dataclass(frozen=True)
class Replayed:
    """What would have been left of a run: ``computed`` of all ``evaluations``; ``why_not``: where that is all of it."""

    computed: int
    evaluations: int
    why_not: str = ""

    @property
    def work(self) -> float:
        """The share of the network's work that is left."""
        return self.computed / max(self.evaluations, 1)


@dataclass
class Sampling:
    """One run of a sampler: it is written while the sampler runs, and whole when that came to its end.

    Attributes:
        link: the name that was given to its MODEL.
        solver: ComfyUI's name of it; ``levels`` are its noise levels, the last one included.
        flow: whether the network was trained by flow matching.
        shape: of the latent, ``[batch, channels, ...]``; packed if it has several streams.
        sketch: what makes its sketches, and splits them into the parts that are judged one by one.
        blend: sketches of what a mask keeps; None without one.
        refusals: why Reuse Steps would leave the run alone.
        evaluations: how many guided predictions the sampler was given; ``computed``: passes that the network computed
            for them, two for each with guidance.
        loading_seconds: from the sampler's call to the first evaluation; ``sampling_seconds`` from there to the last
            one's end.
        model: the MODEL that was observed, without the observer.
        again: samples it once more (``ReplayInputs``); None if that was not kept.
        replayed: what replays have found, by their budgets.
    """

    link: str
    solver: str
    levels: list[float]
    flow: bool
    shape: tuple[int, ...]
    sketch: Subsample
    blend: Blend | None = None
    refusals: list[str] = field(default_factory=list)
    seen: list[RecordedEvaluation] = field(default_factory=list)
    evaluations: int = 0
    computed: int = 0
    loading_seconds: float = 0.0
    sampling_seconds: float = 0.0
    model: Any = None
    again: Any = None
    replayed: dict[float, Replayed] = field(default_factory=dict)

    @property
    def points(self) -> list[Point]:
        """What can be evaluated again."""
        return [(number, one.sigma, one.whole) for number, one in enumerate(self.seen) if one.whole is not None]

    @property
    def can_probe(self) -> bool:
        return self.again is not None and bool(self.points)

    @property
    def bytes(self) -> int:
        """The memory of what is kept to sample or evaluate it once more."""
        return 0 if self.again is None else self.again.bytes + sum(whole.nbytes for _, _, whole in self.points)

    @property
    def flattened(self) -> float:
        """How far its picture is from one without contrast, as a share of what another seed changes; 0: not known."""
        if not self.seen:
            return 0.0
        last = self.seen[-1].guided
        return self.share(last - last.mean(1, keepdim=True))

    def share(self, difference: Tensor) -> float:
        """Return how far the worst part of a sketch has moved, as a share of what another seed changes.

        By the same estimate as in Reuse Steps: the first positive pass is the mean of all pictures of the prompt.
        """
        first, last = self.seen[0], self.seen[-1]
        mean = first.guided if first.positive is None else first.positive
        account = Budget(1.0, Calibration(1.0))
        change = last.guided - mean
        if self.blend is not None:
            change, difference = change * self.blend.share, difference * self.blend.share
        own = contrast(self.sketch.split(last.guided)) * (self.blend is None)
        measured = stream_rms(self.sketch.split(change)), own
        account.measure_seeds(torch.cat(measured).tolist(), last.sigma)
        return account.share(rms(self.sketch.split(difference)).tolist())


@dataclass
class Decoding:
    """What the VAE of a link decoded in one run: ``seconds`` of all calls, and the first of them, of a latent."""

    link: str
    vae: Any
    method: str
    samples: Tensor
    seconds: float
    args: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def again(self, vae: Any) -> Tensor:
        """Return what a VAE makes of the same."""
        decoded: Tensor = getattr(vae, self.method)(self.samples, *self.args, **self.options)
        return decoded


def _some(places: Tensor, count: int) -> Tensor:
    if places.shape[1] <= count:
        return places
    order = torch.randperm(places.shape[1], generator=torch.Generator().manual_seed(0))
    return places[:, order[:count].sort().values]


def replay(sampling: Sampling, budget: float) -> Replayed:
    """Return the outcome of Reuse Steps with a ``budget``: its own rule decides about each evaluation."""
    if budget not in sampling.replayed:
        sampling.replayed[budget] = _replayed(sampling, budget)
    return sampling.replayed[budget]


def _replayed(sampling: Sampling, budget: float) -> Replayed:
    count, policy = sampling.evaluations, StepReusePolicy(StepReuseSettings(budget=budget), "")
    rule = policy.rule_for(sampling.levels, sampling.solver, sampling.flow, sampling.refusals, sampling.sketch.split)
    if rule is None:
        return Replayed(count, count, policy.outcome.notes[0])
    drawn = _Latent(sampler_of(sampling.solver).update, sampling.blend)
    for seen in sampling.seen:
        place, latent = rule.place_of(seen.sigma), drawn.at(seen)
        if seen.anew:
            rule.forget()
        rule.begin(place)
        guided = rule.forecast(latent) if rule.skips else seen.guided
        if seen.positive is not None:
            rule.first_pass(seen.positive)
        drawn.step(place, rule.end(latent, guided, sampling.blend) - seen.guided)
    rule.read()
    return Replayed(count - rule.outcome.forecast, count)


class _Latent:
    """The latent of a run with other predictions; without the solver's weights it is that of the run.

    ``blend``: what becomes of a prediction before the solver reads it, and of its latent before the network does.
    """

    def __init__(self, update: Solver | None, blend: Blend | None) -> None:
        self._update, self._blend = update, blend
        self._last: tuple[Place, Tensor] | None = None
        self._off: Tensor | None = None

    def at(self, seen: RecordedEvaluation) -> Tensor:
        return seen.latent if self._off is None else seen.latent + self._shared(self._off)

    def step(self, place: Place, change: Tensor) -> None:
        """Take a step with a prediction that differs by ``change``."""
        if self._update is None:
            return
        last, change = self._last, self._shared(change)
        weights = self._update(place, None if last is None else last[0])
        moved = change * weights.now if self._off is None else self._off * weights.keep + change * weights.now
        self._off = moved if last is None else moved + last[1] * weights.before
        self._last = (place, change)

    def _shared(self, change: Tensor) -> Tensor:
        return change if self._blend is None else change * self._blend.share
