"""What one ordinary sampling run has shown: its settings, its seconds, and a sketch of each evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...optimizers.step_reuse.budget import Budget, Calibration
from ...optimizers.step_reuse.parts import rms, stream_rms
from .sketch import Sketch


@dataclass(frozen=True)
class Seen:
    """One evaluation, as sketches ``[batch, entries]``: the network's input, and what it predicted without noise.

    ``passes``: the positive and the negative pass that ``guided`` was made of; one where there is no guidance, none
    where other code makes it. ``anew``: other prompts or ControlNets take part than in the one before.
    """

    sigma: float
    latent: Tensor
    guided: Tensor
    passes: tuple[Tensor, ...] = ()
    anew: bool = False


@dataclass(frozen=True)
class Replayed:
    """What would have been left of a run.

    Attributes:
        computed: evaluations that the network would do, those without the negative pass too; ``evaluations`` are all.
        work: the share of its work that is left; an evaluation without its negative pass counts half.
        why_not: why nothing can be left out; empty where something can.
    """

    computed: int
    evaluations: int
    work: float
    why_not: str = ""


@dataclass
class Sampling:
    """One run of a sampler that came to its end.

    Attributes:
        wire: the name that was given to its MODEL.
        solver: ComfyUI's name of it; ``levels`` are its noise levels, the last one included.
        guidance: scale of plain guidance; None where other code looks at the passes.
        unet: whether the network is a UNet.
        shape: of the latent, ``[batch, channels, ...]``; packed if it has several streams.
        sketch: what makes its sketches, and splits them into the parts that are judged one by one.
        refusals: why Reuse Steps would leave the run alone; ``negative_needed``: why it computes all negative passes.
        evaluations: how many guided predictions the sampler was given; ``computed``: passes that the network computed
            for them, two for each with guidance.
        loading: seconds from the sampler's call to the first evaluation, ``steps`` from there to the last one's end.
        model: the MODEL that was observed, without the observer.
        again: what the probe needs to evaluate it once more; None if that was not kept.
        replayed: what replays have found, by their budgets.
    """

    wire: str
    solver: str
    levels: list[float]
    guidance: float | None
    unet: bool
    shape: tuple[int, ...]
    sketch: Sketch
    refusals: list[str] = field(default_factory=list)
    negative_needed: str = ""
    seen: list[Seen] = field(default_factory=list)
    evaluations: int = 0
    computed: int = 0
    loading: float = 0.0
    steps: float = 0.0
    model: Any = None
    again: Any = None
    replayed: dict[float, Replayed] = field(default_factory=dict)

    @property
    def can_probe(self) -> bool:
        return self.again is not None

    @property
    def guided(self) -> bool:
        """Whether most evaluations have a negative pass."""
        return sum(len(one.passes) > 1 for one in self.seen) * 2 > len(self.seen)

    def share(self, difference: Tensor) -> float:
        """Return how far the worst part of a sketch has moved, as a share of what another seed changes.

        By the same estimate as in Reuse Steps: the first positive pass is the mean of all pictures of the prompt.
        """
        first, last = self.seen[0], self.seen[-1]
        mean = first.passes[0] if first.passes else first.guided
        account = Budget(1.0, Calibration(1.0))
        account.measure_seeds(stream_rms(self.sketch.split(last.guided - mean)).tolist(), last.sigma)
        return account.share(rms(self.sketch.split(difference)).tolist())
