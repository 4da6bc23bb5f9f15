"""The sounds of a comparison: waves with a VAE for them, else latents."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....optimizers.hosts.comfyui.protocols import VAE
from ...measurement.sound import SoundDistance, sound_distance
from ..latents import decode_sound, sample_rate
from ..sampling import Sampled
from .rounds import SideRuns


@dataclass(frozen=True)
class Sounds:
    """The sound of a comparison.

    Attributes:
        distance: None where a sound has values that are not numbers, which ``broken`` says.
        waves: by side, ``[channels, samples]``, that ``distance`` is of; empty without a VAE.
        rate: of the waves, in samples a second.
    """

    distance: SoundDistance | None
    waves: dict[str, Tensor]
    rate: int | None
    broken: str = ""


def make_sounds(baseline: SideRuns, optimized: SideRuns) -> Sounds | None:
    """Return the sounds of all rounds and how far they are apart; None if there are none."""
    vae = baseline.side.audio_vae
    if vae is None and baseline.outputs[0].sound is None:
        return None
    rate = None if vae is None else sample_rate(vae)
    before, after = (torch.cat([_sound(vae, output) for output in side.outputs]) for side in (baseline, optimized))
    for whose, sounds in (("The baseline's sound", before), ("The optimized sound", after)):
        if not sounds.isfinite().all():
            return Sounds(None, {}, rate, f"{whose} has values that are not numbers (NaN or infinite)")
    distance, worst = sound_distance(before, after, rate)
    return Sounds(distance, {} if vae is None else {"baseline": before[worst], "optimized": after[worst]}, rate)


def _sound(vae: VAE | None, output: Sampled) -> Tensor:
    latent = output.latent if output.sound is None else output.sound
    return latent if vae is None else decode_sound(vae, latent)
