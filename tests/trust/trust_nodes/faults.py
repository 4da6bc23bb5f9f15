"""Faults to order: what other nodes and the machine do to us while a model is sampled."""

from __future__ import annotations

from typing import Any

import torch
from comfy_host.made_nodes import node

from .wrong import WRONG

FAULTS = ("none", "memory", "error", "cancel")


@node(
    *("TrustFault", "MODEL"),
    model=("MODEL",),
    fault=(list(FAULTS),),
    at_call=("INT", {"default": 3, "min": 0, "max": 10000}),
    again=("INT", {"default": 0, "min": 0, "max": 2**32}),
)
def fail(model: Any, fault: str, at_call: int, again: int) -> tuple[Any]:
    """A wrapper of the network, as other nodes set it, that fails in one of its calls."""
    import comfy.model_management
    import comfy.patcher_extension

    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls != at_call + 1:
            return
        if fault == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (ordered by a test)")
        if fault == "error":
            raise ValueError("a patch of another node fails (ordered by a test)")
        if fault == "cancel":
            comfy.model_management.interrupt_current_processing()

    def wrapper(executor: Any, *args: Any, **kwargs: Any) -> Any:
        count()
        return executor(*args, **kwargs)

    clone = model.clone()
    clone.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.DIFFUSION_MODEL, "trust_fault", wrapper)
    return (clone,)


@node("TrustWrongType", *("MODEL", "VAE", "CONDITIONING", "LATENT", "CONTROL_NET"), value=(list(WRONG),))
def wrong(value: str) -> tuple[Any, ...]:
    """Something that is not what the link says: ComfyUI compares names of types, not what comes over a link."""
    return (WRONG[value],) * 5
