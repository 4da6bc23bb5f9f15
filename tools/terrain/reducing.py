"""Ways of reducing tokens in the terrain model.

Uses the pack's public math only, none of its adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from comfy_host.pack import load_pack
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from .network import Place, SelfAttention

load_pack()
from paceline.optimizers.token_merging.grid import partition_tokens, random_offsets  # noqa: E402
from paceline.optimizers.token_merging.kv_downsample import KVDownsampling  # noqa: E402
from paceline.optimizers.token_merging.local_merge import LocalMerging, windows_of  # noqa: E402
from paceline.optimizers.token_merging.matching import match, merge, unmerge  # noqa: E402

KEYS_ONLY = ("merge keys", "kv borders", "kv nearest", "kv last", "kv edges", "kv mean", "zero")
METHODS = ("merge", "merge top-left", "merge shared", "local merge", *KEYS_ONLY)
"""``merge`` has random destinations, ``merge top-left`` has not. ``merge keys`` merges keys and values only, and tells
the attention how many tokens each one stands for. ``kv borders`` is what Apply ToMe does; the other grids are there to
be compared with it: ``kv nearest`` (ToDo) keeps the first row and column of the image but not the last, ``kv last`` is
its mirror image, ``kv edges`` spreads the kept ones from edge to edge, ``kv mean`` averages. ``zero`` is no method but
a control: it removes the attention's output."""

SHARED = ("merge shared", "local merge")
SHARE_STEPS = 5

Whole = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Plan:
    """How one attention is made smaller.

    Attributes:
        reduce: ``[batch, tokens, channels]`` -> ``[batch, kept, channels]``.
        restore: the way back; None where only keys and values are reduced.
        bias: ``[batch, kept]`` to add to the scores.
    """

    reduce: Whole
    restore: Whole | None
    bias: Tensor | None = None


@dataclass(frozen=True)
class Setting:
    """A method, how much it takes away, and at which sizes of the feature map.

    Attributes:
        method: one of ``METHODS``.
        ratio: share of the tokens to take away.
        sides: heights of the feature maps where it works.
    """

    method: str
    ratio: float
    sides: tuple[int, ...]


class Reducer:
    """Makes plans for one sampling run, or one picture of a one-step model.

    The shared methods match in the first block of a part of the network at one level and keep that for all its blocks
    and for ``SHARE_STEPS`` steps; the others match in every block at every step.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.uses = 0
        self._kept: dict[tuple[str, int, int], Plan] = {}

    def plan(self, tokens: Tensor, place: Place, step: int = 0) -> Plan | None:
        """Return what to do with ``[batch, tokens, channels]`` at a place, or None to leave it alone."""
        setting = self.setting
        if place.height not in setting.sides:
            return None
        self.uses += 1
        if setting.method not in SHARED:
            return _plan(tokens, place, setting, step)
        key = (place.part, place.height, step // SHARE_STEPS)
        if key not in self._kept:
            self._kept[key] = _plan(tokens, place, setting, step)
        return self._kept[key]

    def hook(self, attention: SelfAttention, tokens: Tensor, place: Place) -> Tensor:
        """Run an attention of the terrain model on fewer tokens; see `network.Hook`."""
        plan = self.plan(tokens, place)
        if plan is None:
            return attention.attend(tokens, tokens)
        if self.setting.method == "zero":
            return torch.zeros_like(tokens)
        less = plan.reduce(tokens)
        if plan.restore is None:
            return attention.attend(tokens, less, plan.bias)
        return plan.restore(attention.attend(less, less))


def _plan(tokens: Tensor, place: Place, setting: Setting, step: int) -> Plan:
    _, block, height, width = place
    method, ratio = setting.method, setting.ratio
    if method == "zero":
        return Plan(torch.zeros_like, None)
    if method == "kv borders":
        return Plan(KVDownsampling(height, width, ratio).reduce, None)
    if method.startswith("kv "):
        return Plan(lambda x: _other_grid(x, height, width, ratio, method), None)
    if method == "local merge":
        local = LocalMerging.match(tokens.float(), windows_of(height, width), ratio)
        return Plan(local.reduce, local.restore)
    offsets = None if method == "merge top-left" else random_offsets(height, width, step=step, block=block)
    matching = match(tokens, partition_tokens(height, width, offsets=offsets), ratio)
    if method == "merge keys":
        # Proportional attention (arXiv 2210.09461, section 3): n equal keys weigh as much as one with log n added.
        return Plan(lambda x: merge(x, matching), None, matching.counts.float().log())
    return Plan(lambda x: merge(x, matching), lambda y: unmerge(y, matching))


def _even_side(side: int, ratio: float) -> int:
    return max(1, round(side * (1.0 - ratio) ** 0.5))


def _other_grid(x: Tensor, height: int, width: int, ratio: float, method: str) -> Tensor:
    """Thin out on the grids that were not chosen: ToDo's own, its mirror image, edge to edge, and averaging."""
    kept = [_even_side(side, ratio) for side in (height, width)]
    grid = x.unflatten(1, (height, width))
    if method == "kv mean":
        return adaptive_avg_pool2d(grid.permute(0, 3, 1, 2), kept).permute(0, 2, 3, 1).flatten(1, 2)
    if method == "kv last":
        grid = grid.flip(1, 2)
    spread = method == "kv edges"
    rows, columns = (
        torch.linspace(0, side - 1, count, dtype=torch.float64).round().long()
        if spread
        else torch.arange(count) * side // count
        for side, count in ((height, kept[0]), (width, kept[1]))
    )
    return grid.index_select(1, rows).index_select(2, columns).flatten(1, 2)
