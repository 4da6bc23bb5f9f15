"""Whether the rule can follow a run: down its schedule, level by level, with one latent and the whole network.

Whatever its name and wherever it hooks in, a cache of steps answers for blocks that it leaves out. One in the middle of
the network is watched: caches that look at the first blocks, or compute the last ones too, leave that one out.
"""

from __future__ import annotations

import torch
from torch.nn import Module, ModuleList, Sequential

from ..models.samplers import Place

RISES = "the noise rises again within the run, so earlier measurements do not hold any more"
RESIZED = "the sampler, or a node around it, has latents of several sizes computed"
TWICE = "the sampler, or a node around it, computes the same noise level several times"

SAME = 1e-4
"""Noise levels that differ by less than this part are one."""


def off_path(last: Place | None, place: Place, once: bool) -> str | None:
    """Return why the rule cannot follow a run to its next evaluation; None if it can.

    ``once``: whether the sampler asks once at each noise level.
    """
    if last is None or place.sigma < last.sigma * (1 - SAME):
        return None
    return RISES if place.sigma > last.sigma * (1 + SAME) else TWICE if once else None


LEFT_OUT = "other code on the model skips steps too, as step caches do"


class Blocks:
    """Counts the calls of one block of ``network`` until it is left; none where code of it is compiled."""

    def __init__(self, network: Module, compiled: bool = False) -> None:
        block = None if compiled else _middle(network)
        self._handle = None if block is None else block.register_forward_hook(self._ran)
        self._calls = 0
        self._known = False

    def _ran(self, *_: object) -> None:
        if not torch.compiler.is_compiling():
            self._calls += 1

    def were_left_out(self) -> bool:
        """Return whether the block did not run since this was asked last, though it has in an evaluation before."""
        ran, self._calls = self._calls > 0, 0
        self._known |= ran
        return self._known and not ran

    def leave(self) -> None:
        if self._handle is not None:
            self._handle.remove()


def _middle(network: Module) -> Module | None:
    """Return a module in the middle of a UNet or transformer that is called as such; None if there is none."""
    for name in ("middle_block", "mid_block"):
        found = getattr(network, name, None)
        if isinstance(found, Module):
            return _first(found)
    lists = [module for module in network.modules() if isinstance(module, ModuleList) and len(module) > 1]
    longest = max(lists, key=len, default=None)
    return None if longest is None else _first(longest[len(longest) // 2])


def _first(block: Module) -> Module | None:
    """Return the first part of a block whose parts are called one by one."""
    parts = list(block.children())
    return parts[0] if isinstance(block, Sequential) and parts else block
