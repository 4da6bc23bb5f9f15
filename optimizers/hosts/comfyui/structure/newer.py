"""Features that only newer versions of ComfyUI have, used where they are there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn import Module


def kept_memory() -> AbstractContextManager[object]:
    """Return the context in which to allocate, inside of a network's block, what is kept after the block.

    Since 0.34 ComfyUI takes back the memory that some networks' blocks allocate when the block ends.
    """
    if torch.compiler.is_compiling():  # allocates where the graph does
        return nullcontext()
    pause: Callable[[], AbstractContextManager[object]] | None
    pause = getattr(sys.modules.get("comfy.model_prefetch"), "pause_malloc_graph", None)
    return nullcontext() if pause is None else pause()


def layers_with_a_preference(network: Module) -> int:
    """Return how many layers have an attention of their own that the checkpoint asks for (ComfyUI 0.34 and newer).

    None has for which this machine has no kernel. ComfyUI asks overrides first, so an override of ours takes the place
    of a layer's own attention.
    """
    own = (getattr(module, "comfy_attention", None) for module in network.modules())
    return sum(getattr(attention, "function", None) is not None for attention in own)


def checkpoint_attention_overrides(network: Module) -> tuple[str, ...]:
    """Return a note on the layers whose own attention an override of ours replaces; empty if there are none."""
    count = layers_with_a_preference(network)
    if not count:
        return ()
    return (
        f"the checkpoint asks for an attention of its own in {count} layer{'' if count == 1 else 's'}, "
        "which this node replaces",
    )
