"""A proof of an offer: the same seeds are drawn plain and faster, in turn, and judged as in Compare Models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...measure.drawn import Drawn, TimedRun
from ...measure.evidence import LATE, kept_levels
from ...measure.measure import SIDES, MeasurePlan, measure
from ...measure.picture import side_by_side, to_8_bit
from ...measure.replay import Sampling
from ...measure.speedup import measure_speedup
from ...optimizers.core.choices import Choice
from ...optimizers.core.phrases import Phrase
from ...optimizers.in_comfyui.structure.protocols import VAE, Latent
from ..comfyui.machine import stop_if_cancelled
from ..comfyui.observer import Observer
from ..comfyui.output_files import Entry, OutputFiles
from ..comfyui.sampling_job import decode, streams_of
from .prompts import FEWEST, PICTURES
from .sentences import proved, so_far


@dataclass
class Proof:
    """A proof while it is drawn: the pairs so far, the sentence that they support, and the farthest pair's picture.

    Attributes:
        observer: of the proof's own runs.
        choice: how far a picture may move.
        flattened: as of `Sampling`, of the run before.
        latents: of both sides, by side, seed and end of the workflow.
        text: what the pairs have shown; None before the first pair.
        over: whether no more pairs are needed.
        beyond: whether a pair is farther than ``choice`` allows.
        picture: None where no pair was decoded.
    """

    observer: Observer
    choice: Choice
    flattened: float = 0.0
    latents: dict[str, Latent] = field(default_factory=dict)
    text: Phrase | None = None
    over: bool = False
    beyond: bool = False
    picture: Entry | None = None

    @property
    def seeds(self) -> int:
        """How many were drawn."""
        return len({name.split()[1] for name in self.latents})

    @property
    def pictures(self) -> int:
        """How many it draws if the next pair is the last one."""
        return 2 * max(FEWEST, self.seeds + 1)

    def judge(self, latents: Mapping[str, Latent], vae: VAE | None) -> None:
        """Say what these latents and those before show, and save the farthest pair as a picture.

        Of the seconds nothing is said before they are clear, or all seeds are drawn. The frames of a video are not
        decoded, which could take longer than the proof.
        """
        self.latents |= latents
        samplings, seeds = [*self.observer.samplings], self.seeds
        times = ([_sum(samplings, "sampling_seconds", f"{side} {seed}") for seed in range(seeds)] for side in SIDES)
        self.over = seeds == PICTURES or (seeds >= FEWEST and measure_speedup(*times).settled)
        ends = sorted({name.split()[2] for name in self.latents})
        drawings = [_ProofDraw(self, samplings, end) for end in ends]
        judged = [(drawing, measure(drawing.draw, drawing.plan)) for drawing in drawings]
        drawing, worst = max(judged, key=lambda pair: pair[1].verdict.seed_share or 0.0)
        plain, faster = (_sum(samplings, "computed", side) / seeds for side in SIDES)
        work = faster, plain
        if not self.over:
            self.text = so_far(worst, work, seeds, PICTURES, self.flattened)
            return
        self.beyond = (worst.verdict.seed_share or 0.0) > self.choice.allows
        self.text = proved(worst, work, seeds, self.beyond)
        if worst.verdict.seed_share is None or vae is None:
            return
        seed, number = divmod(worst.evidence.worst, worst.evidence.count // seeds)
        drawn = [drawing.draw(side, seed, 0).latents[0][number][None] for side in SIDES]
        if drawn[0].ndim != 4:
            return
        pictures = side_by_side(*(to_8_bit(decode(vae, latent)) for latent in drawn))
        self.picture = OutputFiles("paceline/proof", keep=False).save_picture("proof.png", pictures[0])


class _ProofDraw:
    """What was drawn of one LATENT of the workflow, for the judge; seconds are of all samplers' steps."""

    def __init__(self, proof: Proof, samplings: Sequence[Sampling], end: str) -> None:
        self._samplings, self._observer, self._latents, self._end = samplings, proof.observer, proof.latents, end
        seeds = proof.seeds
        plain = [one for one in samplings if one.link.startswith("baseline ")]
        # What fewer steps would be is the scheduler's to say, which a sampler does not know.
        alone = len(plain) == seeds and all(one.again is not None for one in plain)
        steps = len(plain[0].levels) - 1 if alone else 1
        self.plan = MeasurePlan(steps, seeds, warm_up=None, controls=(LATE,) if alone and proof.over else ())

    def draw(self, side: str, seed: int, steps: int) -> Drawn:
        if side == LATE:
            return self._without_late_levels(seed, steps)
        seconds = _sum(self._samplings, "sampling_seconds", f"{side} {seed}")
        return Drawn(TimedRun(seconds), streams_of(self._latents[f"{side} {seed} {self._end}"]["samples"]))

    def _without_late_levels(self, seed: int, steps: int) -> Drawn:
        again: Any = next(one.again for one in self._samplings if one.link.startswith(f"baseline {seed} "))
        last = len(again.sigmas) - 1
        sigmas = again.sigmas[[*(kept_levels(last, steps) or ()), last]]
        samples: Tensor = again.sample(again.sampler, sigmas, callback=lambda *_: stop_if_cancelled())
        return Drawn(TimedRun(self._observer.samplings[-1].sampling_seconds), streams_of(samples))


def _sum(samplings: Sequence[Sampling], name: str, link: str) -> float:
    return sum(float(getattr(one, name)) for one in samplings if one.link.startswith(f"{link} "))
