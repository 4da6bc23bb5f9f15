"""Several techniques in ComfyUI's one slot for attention overrides, inside of what other packs put there.

From outside to inside: the override of another pack, our layers (what installs later stands further outside), ComfyUI's
own function. An override of another pack may change what attention means (masks, regions), and that must not be lost
whichever node comes first; ours only change how it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
        boxed: does the same with q, k and v in ComfyUI's containers, and hands containers on; None if it cannot.
        activity: is told each time another pack's override does not let a call through to us.
        not_reached: is called then.
        knows_places: whether it asks at which block it is, which code that blocks share does not know.
    """

    attend: Attend
    boxed: Attend | None = None
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


def _run_containers(*args: Any, **kwargs: Options) -> Tensor:
    """Compute a call whose q, k and v come in containers, which the one who computes it empties to free memory.

    Only ComfyUI's newer versions have them. An override that takes containers gets them as they are: it computes the
    call itself, and nothing of ours could change it. Our layers hand containers on where all of them can; an override
    that takes none gets tensors, as ComfyUI does it.
    """
    from comfy.ldm.modules import attention

    chain: AttentionChain = kwargs["transformer_options"][_CHAIN]
    takes_containers = getattr(chain.foreign, "container_function", None)
    if takes_containers is not None:
        result: Tensor = takes_containers(*args, **kwargs)
        chain.missed()
        return result
    boxed = [layer.boxed for layer in chain.layers if layer.boxed is not None]
    if chain.foreign is None and len(boxed) == len(chain.layers):
        inside: Attend = _from_containers
        for attend in boxed:
            inside = partial(attend, inside)
        return inside(*args, **kwargs)
    q, k, v = (container.take() for container in args[:3])
    return _run(attention.optimized_attention.__wrapped__, q, k, v, *args[3:], **kwargs)


def _from_containers(*args: Any, **kwargs: Options) -> Tensor:
    """Compute a call with ComfyUI's own attention, which takes containers or what is in them."""
    from comfy.ldm.modules import attention

    takes_containers: Attend | None = getattr(attention.optimized_attention, "container_function", None)
    if takes_containers is not None:
        return takes_containers(*args, **kwargs)
    plain: Attend = attention.optimized_attention.__wrapped__
    return plain(*(container.take() for container in args[:3]), *args[3:], **kwargs)


_run.container_function = _run_containers  # type: ignore[attr-defined]  # ComfyUI looks for it on the function
