"""What loading a MODEL's weights again costs its runs, why that is, and what helps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...core.technique import COMPILATION, find
from ..run.comfy_technique import AnyTechnique
from ..run.reporting import send
from ..structure.protocols import Executor, ModelPatcher

LOADING_EVENT = "paceline.loading"
"""Websocket event: a run has loaded weights for so many seconds. The page makes it a part of its own."""

GIB = 2**30

SECOND_COPY = (
    "a second copy of its weights, without dynamic VRAM, which cannot be compiled (to avoid it, start ComfyUI with "
    "--disable-dynamic-vram)"
)
"""Said of everything that was loaded once more to be compiled."""

_LEAST_SECONDS = 0.1
"""Shorter times are not worth a sentence."""

_LEAST_MISSING = 0.05
"""Share of the weights: a network may have some that a run does not use, which dynamic VRAM leaves where they are."""

_SMALLER = "Quantize int8, or a file in fewer bits, makes the model smaller"


def prepare_sampling(
    techniques: Sequence[AnyTechnique], executor: Executor, patcher: ModelPatcher, *args: Any, **kwargs: Any
) -> Any:
    """Load what a run needs, and tell the page how long that took and why (ComfyUI's PREPARE_SAMPLING wrapper)."""
    others, started = _in_place_of(patcher), time.perf_counter()
    result = executor(patcher, *args, **kwargs)
    seconds = time.perf_counter() - started
    node = next((technique.node_id for technique in techniques if technique.node_id is not None), None)
    if seconds >= _LEAST_SECONDS and node is not None:
        again = any(technique.runs.latest is not None for technique in techniques)
        why = f"loading weights again took {seconds:.3g} s: {_why(patcher, techniques, others)}" if again else ""
        send(LOADING_EVENT, node, {"seconds": seconds, "why": why})
    return result


def _in_place_of(patcher: ModelPatcher) -> tuple[str, ...]:
    """Return the classes of the models on a MODEL's device; none if it is there itself."""
    import comfy.model_management

    loaded = [one.model for one in comfy.model_management.current_loaded_models if one.model is not None]
    there = [one for one in loaded if one.load_device == patcher.load_device]
    if any(one.model is patcher.model for one in there):
        return ()
    return tuple(dict.fromkeys(type(one.model).__name__ for one in there))


def _why(patcher: ModelPatcher, techniques: Sequence[AnyTechnique], others: tuple[str, ...]) -> str:
    """Return why weights were loaded again, and what helps; ``others``: models that were on the device before."""
    compiled = find(techniques, COMPILATION)
    if compiled is not None and SECOND_COPY in compiled.policy.notes:
        return (
            "Compile UNet has made a second copy of them, and both do not fit. Start ComfyUI with "
            "--disable-dynamic-vram, or take Compile UNet off"
        )
    if others:
        return f"{', '.join(others)} took their place on the device. {_SMALLER}, so that both fit"
    if not patcher.is_dynamic() and _missing(patcher):  # dynamic VRAM moves the rest while the run goes on
        return f"they do not fit on the device. {_SMALLER}"
    return "the cause is unknown"


def _missing(patcher: ModelPatcher) -> int:
    """Return the bytes of weights that are not on the device, 0 where all that count are."""
    missing = patcher.model_size() - patcher.loaded_size()
    return missing if missing > _LEAST_MISSING * patcher.model_size() else 0


def missing_weights(patcher: ModelPatcher) -> tuple[str, ...]:
    """Return after a run, in a sentence, how much of a MODEL's weights is moved in each step; nothing if all fits."""
    missing = _missing(patcher)
    if not missing:
        return ()
    how = "dynamic VRAM moves them" if patcher.is_dynamic() else "they are moved"
    return (
        f"{missing / GIB:.3g} of {patcher.model_size() / GIB:.3g} GiB of weights do not fit on the device, and {how} "
        f"again in each step: {_SMALLER}",
    )
