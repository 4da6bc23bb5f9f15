"""What a proof has measured: the same seeds drawn plain and faster, in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.phrases import Phrase
from ...optimizers.hosts.comfyui.protocols import VAE, Latent
from ...workbench.comfyui.latents import decode, distance, seed_distance, streams_of
from ...workbench.comfyui.links import require_latent
from ...workbench.comfyui.observer import Observer
from ...workbench.comfyui.output_files import Entry, OutputFiles
from ...workbench.measurement.picture import side_by_side
from ...workbench.measurement.quality import to_8_bit
from ...workbench.measurement.speedup import measure_speedup
from .runs import PICTURES, SIDES
from .sentences import proved


@dataclass
class Proof:
    """Of an offer, by its number; ``text`` is None before its prompt has ended, ``picture`` where none was decoded."""

    offer: int
    observer: Observer
    text: Phrase | None = None
    picture: Entry | None = None

    def judge(self, latents: Mapping[str, Latent], vae: VAE | None) -> None:
        """Say what the latents of both sides show, by side, seed and end, and save the farthest pair as a picture.

        The frames of a video are not decoded, which could take longer than the proof.
        """
        for latent in latents.values():
            require_latent("The sampler's result", latent)
        ends = sorted({name.split()[2] for name in latents})
        worst: tuple[float, Any, int] | None = None
        for end in ends:
            plain, faster = ([latents[f"{side} {seed} {end}"]["samples"] for seed in range(PICTURES)] for side in SIDES)
            apart = seed_distance(plain)
            for pair in zip(plain, faster, strict=True):
                far, number = distance(*pair)
                if apart and (worst is None or far / apart > worst[0]):
                    worst = far / apart, pair, number
        seconds = {side: [self._sum("steps", f"{side} {seed} ") for seed in range(PICTURES)] for side in SIDES}
        work = self._sum("computed", "faster ") / max(1, self._sum("computed", "plain "))
        speedup = measure_speedup(seconds["plain"], seconds["faster"])
        self.text = proved(speedup, work, worst and worst[0], PICTURES)
        if worst is None or vae is None:
            return
        streams = [streams_of(one)[0][worst[2]][None] for one in worst[1]]
        if streams[0].ndim != 4:
            return
        pictures = side_by_side(*(to_8_bit(decode(vae, latent)) for latent in streams))
        self.picture = OutputFiles("paceline/proof", keep=False).save_picture("proof.png", pictures[0])

    def _sum(self, name: str, wire: str) -> float:
        return sum(float(getattr(one, name)) for one in self.observer.samplings if one.wire.startswith(wire))
