"""What is kept for one sampling run."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Hashable, Iterator
from typing import Any

from .....core.shared import Shared
from ..structure.protocols import Options

RUN = "paceline_run"
"""Transformer option with the :class:`RunData` of one sampling run. No network sees it."""

GUARD = "guard"
"""Name of the run's guard among these data."""


class RunData(Shared, UserDict[str, Any]):
    """What techniques keep for one sampling run, by their keys.

    No ``dict``: ComfyUI copies those wherever it finds them in its options.
    """


def run_data(model_options: Options) -> RunData:
    """Return the data of the run that a guider's or sampler's ``model_options`` belong to."""
    data: RunData = model_options.setdefault("transformer_options", {}).setdefault(RUN, RunData())
    return data


def taking_part(conds: dict[str, list[dict[str, Any]]], sigma: float) -> Iterator[Hashable]:
    """Yield what is active at a noise level: conditionings with a range, ControlNets, keyframes of hooks."""
    for name, entries in conds.items():
        for number, entry in enumerate(entries or ()):
            start, end = entry.get("timestep_start"), entry.get("timestep_end")
            if (start is not None and sigma > start) or (end is not None and sigma < end):
                continue
            yield (name, number)
            control = entry.get("control")
            while control is not None:
                first, last = control.timestep_range or (float("inf"), 0.0)
                yield (id(control), first >= sigma >= last)
                control = control.previous_controlnet
            for hook in getattr(entry.get("hooks"), "hooks", ()):
                frames = getattr(hook.hook_keyframe, "keyframes", ())
                yield (id(hook), sum(frame.start_t >= sigma for frame in frames))
