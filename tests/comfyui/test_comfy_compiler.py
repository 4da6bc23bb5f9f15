"""Two prompts in a row while ComfyUI's own compiler takes back the memory of each evaluation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from attention_calls import EXACT, approximate, forget_faults
from reusing import reuse
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class AllocationGraph(TorchDispatchMode):
    """Notes what one evaluation allocates, and what of it is left at its end.

    Attributes:
        kept: the operators whose results somebody kept, of all evaluations.
        evaluations: how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []
        self.evaluations = 0
        self._paused = 0
        self._made: dict[int, tuple[str, StorageWeakRef]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if self._paused or not isinstance(made, torch.Tensor) or _storage(made) in given:
                continue
            reference = StorageWeakRef(made.untyped_storage())
            self._made[reference.cdata] = (str(func), reference)
        return result

    @contextmanager
    def pause(self, sync: bool = False) -> Iterator[None]:
        """Stand in for ``pause_malloc_graph``."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    @contextmanager
    def around(self, network: torch.nn.Module, monkeypatch: Any) -> Iterator[None]:
        """Evaluate a network in the graph, which begins and ends where ComfyUI's does."""
        forward = network.forward

        def evaluate(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            out = torch.empty_like(x)
            with self:
                found = forward(x, *args, **kwargs)
                out.copy_(found)
                del found
                self._end()
            return out

        with monkeypatch.context() as patched:
            patched.setattr(network, "forward", evaluate)
            patched.setattr(sys.modules["comfy.model_prefetch"], "pause_malloc_graph", self.pause, raising=False)
            yield

    def _end(self) -> None:
        self.evaluations += 1
        self.kept += [name for name, reference in self._made.values() if not reference.expired()]
        self._made.clear()


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


MERGE = {"method": "merge", "ratio": 0.5, "max_downsample": "2"}
KEYS = {"method": "kv_downsample", "ratio": 0.75, "max_downsample": "2", "residual": "auto"}
STEPS = 9


def guarded(studio, model):
    """Return a MODEL with approximate attention, whose layers are compared in the first evaluation of each run."""
    return approximate(studio, lambda inputs: EXACT(inputs), model)


@pytest.mark.parametrize("reduced", [MERGE, KEYS], ids=["merge", "keys"])
def test_nothing_of_an_evaluation_is_kept_and_both_prompts_draw_as_without_the_compiler(
    studio, quantize, monkeypatch, reduced
):
    """With Quantize int8, Apply ToMe, the guard and Reuse Steps at once."""
    model = reuse(studio, guarded(studio, studio.tome(quantize(studio.model), **reduced)), 0.3)
    forget_faults()
    expected = studio.sample(model, steps=STEPS)
    graph = AllocationGraph()
    with graph.around(model.model.diffusion_model, monkeypatch):
        drawn = [studio.sample(model, steps=STEPS) for _ in range(2)]
    assert graph.evaluations > 0
    assert graph.kept == []
    for one in drawn:
        assert torch.equal(one, expected)
