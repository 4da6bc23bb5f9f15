"""Watches a VAE decode in an ordinary run, and decodes a piece of what it decoded again with other VAEs.

It is beside the run, never in it: the VAE itself decodes, as it would without. A piece is the whole where there is time
for that, else the first frames, else the middle of the picture. The last functions serve all candidates, whatever they
change.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median_high
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ...core.errors import CannotHelp, PacelineError
from ...core.phrases import phrase
from ...optimizers.hosts.comfyui.compilation.comfy_env import TooLong, compiled_until
from ...optimizers.hosts.comfyui.structure.protocols import VAE
from ..expectation.expect import Probed
from ..measurement.speedup import Speedup, interleaved, measure_speedup
from .machine import stop_if_cancelled

ROUNDS = 3
"""Timed decodings of each VAE, after one that is not timed."""

_MOST = 1000.0
"""Times as fast that are told at most."""

_METHODS = ("decode", "decode_tiled")

_LEAST = 8
"""Rows and columns of a latent that a piece has at least."""

ChangeVAE = Callable[[VAE], VAE]


@dataclass
class Decoding:
    """What a VAE decoded in one run: ``seconds`` of all ``count`` calls, and what the first of them was given.

    ``latent``: ``[batch, channels, (frames,) height, width]``, on the CPU.
    """

    vae: VAE
    method: str
    latent: Tensor
    options: Mapping[str, Any]
    seconds: float
    count: int = 1

    @property
    def memory(self) -> tuple[float, float]:
        """Bytes that the first call takes if it is not in tiles, by ComfyUI's estimate, and those that are free now."""
        import comfy.model_management

        vae: Any = self.vae
        needed: float = vae.memory_used_decode(self.latent.shape, vae.vae_dtype)
        return needed, comfy.model_management.get_free_memory(vae.device)


def watched(vae: VAE, found: Callable[[Decoding], None]) -> VAE:
    """Return a copy of a VAE that tells of each decoding; what it decodes is the same, bit for bit."""
    result = copy.copy(vae)
    for method in _METHODS:
        setattr(result, method, partial(_timed, vae, method, found))
    return result


def _timed(
    vae: VAE, method: str, found: Callable[[Decoding], None], samples: Tensor, *args: Any, **options: Any
) -> Any:
    started = time.perf_counter()
    result = getattr(vae, method)(samples, *args, **options)  # on the CPU, so the device has come to its end
    seconds = time.perf_counter() - started
    if not args and isinstance(samples, Tensor):
        found(Decoding(vae, method, samples.detach().cpu(), options, seconds))
    return result


@dataclass(frozen=True)
class ProbedVAE:
    """What VAEs were worth: ``seconds`` is what the run's decodings take with the plain one, once it is loaded.

    The ``error`` of each is that of the picture, as a share of what another seed changes.
    """

    seconds: float
    found: list[Probed]


def probe_decoding(decoding: Decoding, candidates: Mapping[str, ChangeVAE], spare: float) -> ProbedVAE:
    """Decode a piece with each candidate, in turn with the plain VAE; what compiles longer than ``spare`` is given up.

    ComfyUI's cancel ends it.
    """
    refused, vaes, made = dict[str, Probed](), {"": decoding.vae}, {"": 0.0}
    for name, change in candidates.items():
        began = time.perf_counter()
        try:
            vaes[name] = change(decoding.vae)
        except PacelineError as error:
            refused[name] = Probed(name, why_not=brief_of(error))
        made[name] = time.perf_counter() - began
    if len(refused) == len(candidates):
        return ProbedVAE(decoding.seconds, [*refused.values()])
    latent = _piece(decoding.latent, spare / (len(vaes) * (1 + ROUNDS)) / (decoding.seconds / decoding.count))
    deadline, seconds, pictures = monotonic() + spare, dict[str, list[float]](), dict[str, Tensor]()
    for number in range(1 + ROUNDS):
        if number and monotonic() > deadline:
            break
        for name in interleaved([name for name in vaes if name not in refused], number):
            with trying(name, refused, deadline, spare):
                taken, picture = _decode(vaes[name], decoding, latent)
                seconds.setdefault(name, []).append(taken)
                pictures.setdefault(name, picture)
    plain = seconds[""][1:]
    noise = max(plain, default=1.0) / min(plain, default=1.0)
    scale = decoding.count * decoding.latent.numel() / latent.numel()
    whole = min(decoding.seconds, scale * median_high(plain)) if plain else decoding.seconds
    found = [
        refused[name]
        if name in refused
        else _judged(name, seconds[name], plain, made[name], _moved(pictures[name], pictures[""]), noise)
        for name in candidates
    ]
    return ProbedVAE(whole, found)


def _decode(vae: VAE, decoding: Decoding, latent: Tensor) -> tuple[float, Tensor]:
    stop_if_cancelled()
    started = time.perf_counter()
    picture: Tensor = getattr(vae, decoding.method)(latent.clone(), **decoding.options)
    return time.perf_counter() - started, picture


def _piece(latent: Tensor, share: float) -> Tensor:
    """Return about a ``share`` of a latent: fewer pictures, fewer frames, a smaller middle, in this order."""
    share = min(1.0, share)
    for axis in range(latent.ndim):
        size = latent.shape[axis]
        if axis == 1 or share >= 1:
            continue
        spatial = axis >= latent.ndim - 2
        wanted = size * (math.sqrt(share) if axis == latent.ndim - 2 else share)
        kept = min(size, max(_LEAST if spatial else 1, int(wanted)))
        latent = latent.narrow(axis, (size - kept) // 2 if spatial else 0, kept)
        share = min(1.0, share * size / kept)
    return latent


def _moved(picture: Tensor, plain: Tensor) -> float:
    """Return the root mean square of the difference, as a share of what another seed changes.

    Of two unrelated pictures that is 1.4 times the standard deviation of one of them; one time is taken, to be careful.
    """
    difference = (picture.float() - plain.float()).square().mean().sqrt()
    return float(torch.nan_to_num(difference / plain.float().std().clamp(min=1e-6), nan=math.inf))


def _judged(name: str, seconds: list[float], plain: list[float], made: float, error: float, noise: float) -> Probed:
    first, timed = seconds[0], seconds[1:]
    if not timed:
        return Probed(name)
    speedup = measure_speedup(plain[: len(timed)], timed)
    once = made + max(0.0, first - median_high(timed))
    return Probed(name, ends_of(speedup), speedup.clear, error, points=1, once=once, noise=noise)


@contextmanager
def trying(name: str, refused: dict[str, Probed], deadline: float, seconds: float) -> Iterator[None]:
    """Note in ``refused`` why a candidate cannot be computed; what the plain one (``""``) raises is raised.

    What still compiles at ``deadline``, of ``time.monotonic``, is given up; ``seconds`` is how long that was.
    """
    try:
        with compiled_until(deadline):
            yield
    except TooLong:
        why = phrase(
            "compiling takes longer than the {seconds:.0f} s of this test, and how long is not known here",
            seconds=seconds,
        )
        refused[name] = Probed(name, why_not=why, once=seconds)
    except RuntimeError as error:  # a kernel's refusal, or memory; ComfyUI's cancel is none
        if not name:
            raise
        refused[name] = Probed(name, why_not=str(error))


def brief_of(error: PacelineError) -> str:
    """Return why a candidate cannot be made, in a few words where there are such."""
    return error.brief if isinstance(error, CannotHelp) else str(error)


def ends_of(speedup: Speedup) -> tuple[float, float, float]:
    """Return how many times as fast: from, likely, to."""
    return speedup.low, speedup.ratio, min(speedup.high, _MOST)
