"""Outputs of runs become pictures that can be compared, pair by pair: uint8, as they are saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...measurement.evidence import share_of
from ...measurement.quality import Distance, distances, no_picture, seed_change
from ...measurement.sound import spectrogram_picture
from ...measurement.verdict import settled
from ..latents import Decoded, decode, decode_sound, preview
from ..sampling import Sampled
from .rounds import Side, SideRuns, by_prompt


@dataclass(frozen=True)
class Pictures:
    """All pictures of a comparison, uint8 ``[pictures, height, width, 3]``, those of the first seed first.

    Attributes:
        baseline: of all seeds; so are ``optimized``, and ``fewer_steps`` if that was drawn.
        other_seed: of the baseline, from a seed that is not among them.
    """

    baseline: Tensor
    optimized: Tensor
    other_seed: Tensor
    fewer_steps: Tensor | None = None


class Pairs:
    """The pictures of both sides from the same seeds, and how far they are apart.

    Each is decoded and compared once, however often there are new ones. ``warmed`` is what the baseline drew before;
    ``prompts`` are taken in turn by the seeds.

    `UnsupportedModel` if there is neither a VAE nor a preview for the model's latents, `InvalidSetting` if the pictures
    differ in size.
    """

    def __init__(self, baseline: SideRuns, optimized: SideRuns, warmed: Sequence[Sampled], prompts: int) -> None:
        self.baseline, self.optimized = baseline, optimized
        self.distances: list[Distance] = []
        self._prompts, self._warmed = prompts, warmed
        self._before: list[Decoded] = []
        self._after: list[Decoded] = []
        self._other: list[Decoded] = []
        self._seed_changes: dict[int, Distance] = {}

    def update(self) -> None:
        """Decode and compare what further rounds gave."""
        self._other = self._other or [decoded(self.baseline.side, output) for output in self._warmed]
        for number in range(len(self._before), len(self.optimized.outputs)):
            self._before.append(decoded(self.baseline.side, self.baseline.outputs[number]))
            self._after.append(decoded(self.optimized.side, self.optimized.outputs[number]))
            self.distances += distances(self._after[-1].pictures, self._before[-1].pictures)

    @property
    def same_bits(self) -> bool:
        """Whether both sides gave the same in every round, bit for bit."""
        return all(map(Sampled.equals, self.baseline.outputs, self.optimized.outputs))

    @property
    def broken(self) -> str:
        """What is wrong, if one of them is no picture at all, else empty."""
        sides = (("The baseline's image", self._before), ("The optimized image", self._after))
        found = (no_picture(whose, _together(some), torch.cat([one.finite for one in some])) for whose, some in sides)
        return next(filter(None, found), "")

    def seed_change(self) -> Distance:
        """Return how far the baseline's pictures from different seeds are apart, with the same prompt."""
        known = len(self._before)
        if known not in self._seed_changes:
            groups = by_prompt(self._before, self._other, self._prompts)
            self._seed_changes[known] = seed_change([[one.pictures for one in draws] for draws in groups])
        return self._seed_changes[known]

    def clear(self) -> bool:
        """Say whether it is known how far the worst picture is from the baseline's."""
        self.update()
        if self.broken or self.same_bits:
            return True
        found = [share_of(one, self.seed_change()) for one in self.distances]
        shares = [share for share in found if share is not None]
        frames = self.frames
        worst = [max(shares[start : start + frames]) for start in range(0, len(shares), frames)]
        return not worst or settled(worst)

    @property
    def frames(self) -> int:
        latent = self.baseline.outputs[0].latent
        return len(self._before[0].pictures) // len(latent) if latent.ndim == 5 else 1

    def pictures(self, fewer_steps: Tensor | None) -> Pictures:
        """Return all of them together."""
        return Pictures(_together(self._before), _together(self._after), self._other[0].pictures, fewer_steps)


def decoded(side: Side, output: Sampled) -> Decoded:
    """Return the pictures of an output, which are decoded if that was not timed."""
    if output.decoded is not None:
        return output.decoded
    if side.vae is None and side.audio_vae is not None and output.sound is None:
        return Decoded.of(spectrogram_picture(decode_sound(side.audio_vae, output.latent)))
    if side.vae is None:
        return Decoded.of(preview(side.model, output.latent))
    return Decoded.of(decode(side.vae, output.latent))


def _together(decoded: Sequence[Decoded]) -> Tensor:
    return torch.cat([one.pictures for one in decoded])
