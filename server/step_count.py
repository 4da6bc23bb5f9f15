"""How many steps a workflow samples with, as far as that stands in it."""

from __future__ import annotations

from collections.abc import Iterator

from ..workbench.comfyui.prompt import Prompt, node_before, way_back
from .known_values import NUMBERS, known
from .wires import Wire


def steps_behind(prompt: Prompt, wire: Wire) -> int | None:
    """Return the most steps of a sampler that is given a model by a wire; None where that is not known yet."""
    receivers = [node for node, _ in wire.receivers]
    samplers = [id for id in prompt if id in receivers or node_before(prompt, id, "guider") in receivers]
    counts = [count for id in samplers for count in _counts(prompt, id)]
    return max(counts, default=None)


def _counts(prompt: Prompt, sampler: str) -> Iterator[int]:
    inputs = prompt[sampler]["inputs"]
    levels = known(prompt, inputs.get("sigmas"), (*NUMBERS, "SIGMAS"))
    if hasattr(levels, "shape"):
        yield max(0, levels.shape[-1] - 1)
        return
    # Noise levels that a model has a part in, or the size of a picture.
    schedule = way_back(node_before(prompt, sampler, "sigmas"), lambda id: node_before(prompt, id, "sigmas"))
    for id in (sampler, *schedule):
        steps = known(prompt, prompt[id]["inputs"].get("steps"), NUMBERS)
        if isinstance(steps, (int, float)):
            yield int(steps)
            return
