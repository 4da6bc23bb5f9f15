"""A few thousand entries of a latent, always the same: what a run computed, small enough to keep all of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from ...optimizers.step_reuse.parts import Split

ENTRIES = 4096
"""For each item of a batch; root mean squares over them are those of the whole within two percent."""

FEWEST = 512
"""For each part that is judged by itself, a frame for example, however many there are."""


class Sketch:
    """Takes the entries of latents of one shape, ``[batch, ...]``; ``split`` divides them into the parts of the rule.

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


def _some(places: Tensor, count: int) -> Tensor:
    if places.shape[1] <= count:
        return places
    order = torch.randperm(places.shape[1], generator=torch.Generator().manual_seed(0))
    return places[:, order[:count].sort().values]
