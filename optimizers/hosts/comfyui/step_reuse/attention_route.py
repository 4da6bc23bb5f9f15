"""By which way attention goes in the next evaluation: outputs computed by another one are no ground for a forecast.

Nodes that compute attention differently from step to step say so in `POLICIES`, a transformer option of ComfyUI
(``comfy_extras/sparse_attention_history.py``, 0.34 and newer): by the node's name a function that is given the layout
of the tokens, the options of the next call and the network, and returns what the way is known by, or None.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from .....core.calls import Function
from ..runtime.run import GUARD
from ..runtime.technique import KEY
from ..structure.protocols import Executor, Options

POLICIES = "attention_backend_history_v1"
_LAYOUT = "minimax_h3_layout"
"""Transformer option in which the one network that has a layout leaves it."""

UNKNOWN = "another node computes attention, and does not say by which way in the next step"


class UnknownRoute(Exception):
    """Nobody can say by which way attention goes."""


class AttentionRoute:
    """The ways of one sampling run.

    ``run``: its data, which hold the guard; ``broken``: kinds of calls in which our own backend has failed, and why.
    """

    def __init__(self, run: Any, broken: Mapping[Hashable, str]) -> None:
        self._run, self._broken = run, broken
        self._calls: dict[Hashable, tuple[Options, object]] = {}

    def watch(self, options: Options) -> None:
        """Let a call of the network with these ``transformer_options`` leave what the policies ask for."""
        from comfy.patcher_extension import WrappersMP

        if POLICIES not in options:
            return
        wrappers = options.get("wrappers", {})
        around: dict[str, list[Function]] = {
            **wrappers.get(WrappersMP.DIFFUSION_MODEL, {}),
            f"{KEY}_route": [self._seen],
        }
        options["wrappers"] = {**wrappers, WrappersMP.DIFFUSION_MODEL: around}

    def _seen(self, executor: Executor, *args: Any, **kwargs: Any) -> object:
        result = executor(*args, **kwargs)
        given = (*args, *kwargs.values())
        options = next((one for one in given if isinstance(one, dict) and POLICIES in one), None)
        if options is not None:
            passes = tuple(options.get("uuids", ()))
            self._calls[passes] = ({name: options[name] for name in options if name != KEY}, executor.class_obj)
        return result

    def at(self, sigma: float) -> Hashable:
        """Return what the way at a noise level is known by; raises `UnknownRoute`."""
        guard = self._run.get(GUARD)
        ours = () if guard is None else tuple(guard.faults)
        return (ours, tuple(self._broken), tuple(self._theirs(sigma)))

    def _theirs(self, sigma: float) -> list[Hashable]:
        found: list[Hashable] = []
        for options, network in self._calls.values():
            level = torch.full_like(options["sigmas"], sigma) if "sigmas" in options else torch.tensor([sigma])
            try:
                for name, policy in options[POLICIES].items():
                    way = policy(layout=options.get(_LAYOUT), options={**options, "sigmas": level}, model=network)
                    hash(way)
                    if way is None:
                        raise UnknownRoute
                    found.append((name, way))
            except (AttributeError, TypeError) as error:  # another contract than the one we know
                raise UnknownRoute from error
        return found

    def forget(self) -> None:
        """Let go of the network and its options at the end of the run."""
        self._calls.clear()
