"""Several techniques in ComfyUI's one slot for attention overrides, inside of what other packs put there.

From outside to inside: the override of another pack, our layers (what installs later stands further outside), ComfyUI's
own function. An override of another pack may change what attention means (masks, regions), and that must not be lost
whichever node comes first; ours only change how it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from ...core.activity import Activity
from ...core.not_copied import NotCopied
from ..structure.attention_owner import SLOT, SPARSE, owner_of
from ..structure.protocols import Options

_CHAIN = "paceline_attention_chain"

Attend = Callable[..., Tensor]
"""Takes the arguments of ``optimized_attention``; an override has the inner function as a first argument."""


class ChainedAttention(NamedTuple):
    """What one technique does to the attention of a model call.

    Attributes:
        attend: computes a call, given the next function inside; the same object in every call of a technique.
        activity: is told each time another pack's override does not let a call through to us.
        not_reached: is called then.
        knows_places: whether it asks at which block it is, which code that blocks share does not know.
    """

    attend: Attend
    activity: Activity | None = None
    not_reached: Callable[[], None] | None = None
    knows_places: bool = False


class AttentionChain(NotCopied):
    """The layers of one model call, innermost first."""

    def __init__(self, foreign: Attend | None) -> None:
        self.foreign = foreign
        self.layers: list[ChainedAttention] = []
        self._taken = 0

    def missed(self) -> None:
        self._taken += 1
        owner = owner_of(self.foreign)
        for layer in self.layers:
            if layer.not_reached is not None:
                layer.not_reached()
            if layer.activity is None:
                continue
            if owner == SPARSE:  # the user has asked for it, and it passes the other calls on to us
                layer.activity.skip(f"call {self._taken}", f"{owner} computed them")
            else:
                layer.activity.fall_back(f"{owner} computed the call itself")


def add_layer(transformer_options: Options, layer: ChainedAttention, innermost: bool = False) -> None:
    """Put ``layer`` around those that are in the chain already; ``innermost``: in the place of ComfyUI's function."""
    chain = transformer_options.get(_CHAIN)
    if chain is None:
        chain = transformer_options[_CHAIN] = AttentionChain(transformer_options.get(SLOT))
        transformer_options[SLOT] = _run
    chain.layers.insert(0 if innermost else len(chain.layers), layer)


def runs_outside(transformer_options: Options) -> bool:
    """Return whether the attention of a call asks where it is: another pack's override, or a layer of ours."""
    chain = transformer_options.get(_CHAIN)
    return chain is None or chain.foreign is not None or any(layer.knows_places for layer in chain.layers)


def _run(func: Attend, *args: object, **kwargs: Options) -> Tensor:
    """Compute one attention call through the chain (what ComfyUI finds in its slot)."""
    options = kwargs["transformer_options"]
    chain: AttentionChain = options[_CHAIN]
    inside = func
    for layer in chain.layers[:-1]:
        inside = partial(layer.attend, inside)
    outermost = chain.layers[-1].attend
    if chain.foreign is None:
        return outermost(inside, *args, **kwargs)
    reached = False

    def innermost(*inner_args: object, **inner_kwargs: object) -> Tensor:
        nonlocal reached
        reached = True
        inner_kwargs.setdefault("transformer_options", options)
        return outermost(inside, *inner_args, **inner_kwargs)

    result = chain.foreign(innermost, *args, **kwargs)
    if not reached:
        chain.missed()
    return result
