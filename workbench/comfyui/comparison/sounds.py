"""Outputs of runs become sounds that can be compared: waves with a VAE for them, else latents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ....optimizers.hosts.comfyui.protocols import VAE
from ...measurement.sound import SoundDistance, sound_distance
from ..latents import decode_sound, sample_rate
from .rounds import Output, SideRuns


@dataclass(frozen=True)
class Sounds:
    """The sound of a comparison.

    Attributes:
        distance: None where a sound has values that are not numbers, which ``broken`` says.
        waves: by side, ``[channels, samples]``, of the run and the item that ``distance`` is of; empty without a VAE.
        rate: of the waves, in samples a second.
    """

    distance: SoundDistance | None
    waves: dict[str, Tensor]
    rate: int | None
    broken: str = ""


def make_sounds(baseline: SideRuns, optimized: SideRuns, other_seed: Output) -> Sounds | None:
    """Return the sounds of all outputs and how far they are apart; None if there are none."""
    vae = baseline.side.audio_vae
    if vae is None and other_seed.sound is None:
        return None
    rate = None if vae is None else sample_rate(vae)
    before, after = ({run: _sound(vae, one) for run, one in side.outputs.items()} for side in (baseline, optimized))
    for whose, sounds in (("The baseline's sound", before), ("The optimized sound", after)):
        if not all(sound.isfinite().all() for sound in sounds.values()):
            return Sounds(None, {}, rate, f"{whose} has values that are not numbers (NaN or infinite)")
    distance, run, item = sound_distance(before, after, _sound(vae, other_seed), rate)
    waves = {} if vae is None else {"baseline": before[1][item], "optimized": after[run][item]}
    return Sounds(distance if len(baseline.runs) > 1 else replace(distance, repeat=None), waves, rate)


def _sound(vae: VAE | None, output: Output) -> Tensor:
    latent = output.latent if output.sound is None else output.sound
    return latent if vae is None else decode_sound(vae, latent)
