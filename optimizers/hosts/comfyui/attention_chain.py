"""Several techniques in ComfyUI's one slot for attention overrides, inside of what other packs put there.

The order from outside to inside is: the override of another pack, our layers from the highest ``order`` down, ComfyUI's
own function. An override of another pack may change what attention means (masks, regions), and that must not be lost
whichever node comes first; ours only change how it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from .protocols import Options

SLOT = "optimized_attention_override"
_CHAIN = "paceline_attention_chain"

NOT_REACHED = "an attention override of another node computed the call itself"

Layer = Callable[..., Tensor]
"""``layer(func, *args, **kwargs)``: ``func`` is the next one inside, the rest what ``optimized_attention`` takes."""


class AttentionChain:
    """The layers of one model call, innermost first, and whom to tell if they are not reached."""

    def __init__(self, foreign: Layer | None) -> None:
        self.foreign = foreign
        self.layers: list[Layer] = []
        self.when_missed: list[Callable[[str], None]] = []


def add_layer(transformer_options: Options, layer: Layer, when_missed: Callable[[str], None]) -> None:
    """Put ``layer`` around the layers that are in the chain already.

    Args:
        transformer_options: the private copy of one model call.
        layer: the function; the same object in every call, so that compiled graphs stay valid.
        when_missed: called with a reason each time another pack's override does not let a call through to us.
    """
    chain = transformer_options.get(_CHAIN)
    if chain is None:
        chain = transformer_options[_CHAIN] = AttentionChain(transformer_options.get(SLOT))
        transformer_options[SLOT] = _run
    chain.layers.append(layer)
    chain.when_missed.append(when_missed)


def add_innermost(transformer_options: Options, layer: Layer) -> None:
    """Put ``layer`` inside of all others: it gets what is left to ComfyUI's own function. Not reached is no matter."""
    if transformer_options.get(_CHAIN) is None:
        add_layer(transformer_options, layer, _nobody)
    else:
        transformer_options[_CHAIN].layers.insert(0, layer)


def _nobody(reason: str) -> None:
    """Tell nobody."""


def _run(func: Layer, *args: object, **kwargs: Options) -> Tensor:
    """Compute one attention call through the chain (what ComfyUI finds in its slot)."""
    options = kwargs["transformer_options"]
    chain: AttentionChain = options[_CHAIN]
    inside = func
    for layer in chain.layers[:-1]:
        inside = partial(layer, inside)
    outermost = chain.layers[-1]
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
        for tell in chain.when_missed:
            tell(NOT_REACHED)
    return result
