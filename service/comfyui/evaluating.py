"""Evaluates kept points of a run once more, with any MODEL.

The guider of the run samples, with a sampler that only evaluates these points. So ControlNets, masks, hooks, ranges of
conditionings and guiders are what they were.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ...measure.replay import Point, Sampling
from ...optimizers.core.devices import synchronize
from ...optimizers.in_comfyui.run.sampling_run import sampling_run
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher
from .machine import stop_if_cancelled
from .observer import ReplayInputs


def spread_points(sampling: Sampling, distances: Sequence[float], most: int) -> list[Point]:
    """Return at ``most`` so many of the kept points, spread over the run: pairs where steps serve later ones.

    ``distances``: from a whole step to those that it serves, on average, in steps.
    """
    apart = max(1.0, max(distances, default=0.0) * sampling.evaluations / max(1, len(sampling.levels) - 1))
    kept, chosen = sampling.points, list[Point]()
    parts, some = max(1, most // 2) if distances else 0, min(most, len(kept))
    for part in range(parts):
        firsts = kept[part * len(kept) // parts : (part + 1) * len(kept) // parts]
        pairs = [(one, later) for one in firsts for later in kept if later[0] > one[0]]
        pairs.sort(key=lambda pair: abs(math.log((pair[1][0] - pair[0][0]) / apart)))
        chosen += [point for pair in pairs[:1] for point in pair]
    return chosen or [kept[int((number + 0.5) * len(kept) / some)] for number in range(some)]


def evaluate(
    sampling: Sampling,
    model: ModelPatcher,
    points: Sequence[Point],
    deadline: float = math.inf,
    ended: Callable[[], object] = lambda: None,
) -> list[tuple[Tensor, float]]:
    """Return outputs and seconds of points with a MODEL, none that begins behind the ``deadline``.

    Every other one, from the first on, is of a whole step. ``ended`` is called behind each.
    """
    import comfy.samplers

    done: list[tuple[Tensor, float]] = []

    def sample(denoiser: Any, noise: Tensor, sigmas: Tensor, extra_args: Any = None, **__: object) -> Tensor:
        run = sampling_run(extra_args["model_options"])
        for place, (_, sigma, kept) in enumerate(points):
            stop_if_cancelled()
            if monotonic() > deadline:
                break
            x = kept.to(noise.device)
            run.whole = place % 2 == 0
            synchronize(x.device)
            started = time.perf_counter()
            output = denoiser(x, torch.full((len(x),), sigma, device=x.device), **extra_args)
            synchronize(x.device)
            done.append((output.cpu(), time.perf_counter() - started))
            ended()
        return noise

    again: ReplayInputs = sampling.again
    again.sample(comfy.samplers.KSAMPLER(sample), again.sigmas, model)
    return done
