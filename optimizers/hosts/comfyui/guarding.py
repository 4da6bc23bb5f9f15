"""The guard of a sampling run: around the sampler, which begins again where an evaluation was spoiled.

Each evaluation is watched in ``Stack.apply_model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.activity import Activity
from ....core.guard import Guard, Spoiled
from .newer import kept_memory
from .protocols import Executor
from .stack import GUARD, RUN, AnyTechnique


class Guarding:
    """Guards the sampling runs of a MODEL with these techniques."""

    def __init__(self, techniques: Sequence[AnyTechnique]) -> None:
        self._watched = [technique for technique in techniques if technique.policy.approximation]

    def __bool__(self) -> bool:
        return bool(self._watched)

    def sampler_sample(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        """Run a sampler under a guard (ComfyUI's SAMPLER_SAMPLE wrapper, the outermost of ours)."""
        kept = args[2]["model_options"].setdefault("transformer_options", {}).setdefault(RUN, {})
        what = tuple(technique.policy.approximation for technique in self._watched)
        guard = kept[GUARD] = Guard(what, kept_memory, can_begin_again=True)
        try:
            while True:
                try:
                    result = executor(*args, **kwargs)
                    guard.settle()
                    return result
                except Spoiled:
                    guard.begin_again()
        finally:
            del kept[GUARD]
            if guard.faults:
                for technique in self._watched:
                    technique.runs.add(Activity(faults=dict(guard.faults)))
