"""Which of several exact kernels is quickest for a kind of call: timed at its first call, and kept.

ComfyUI puts FlashAttention-2 first wherever it can run; on an H100 cuDNN's kernel took half to two thirds of its time,
and torch 2.11 chooses that one by itself. Kernels differ in rounding, so a choice must not change between images: times
are kept in a file, and another kernel than the host's own has to be clearly quicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...core.devices import is_compiling, is_out_of_memory
from ...core.kernel_times import KeptTimes, KernelFailed, interleaved_seconds, where
from .backend import AttentionCall, AttentionFunction, Inputs, short
from .probing import probe
from .registry import get

RIVALS: Mapping[str, tuple[str, ...]] = {"cuda": ("sdpa_flash", "sdpa_cudnn", "sdpa_efficient")}
"""Kernels that are timed against torch's own choice, by device. All are exact."""

CLEARLY = 1.05
"""How many times quicker a kernel must be to take the place of the host's own."""

LARGEST = 2e12
"""Operations of a timed call. Of longer sequences fewer heads are timed: one alone fills a GPU then."""

MOST_SHAPES = 64
"""More kinds of calls are not timed: sizes that change with each call would be timed for ever."""

OWN = "sdpa"

Chosen = tuple[str, AttentionFunction | None]
"""A kernel's name and function; None stands for the host's own."""


def rivals_for(device: torch.device, dtype: torch.dtype, head_sizes: list[int]) -> dict[str, AttentionFunction]:
    """Return the kernels that compute the right numbers here for one head size at least."""
    found: dict[str, AttentionFunction] = {}
    for name in RIVALS.get(device.type, ()):
        if torch.are_deterministic_algorithms_enabled() and not get(name).deterministic:
            continue
        probes = (probe(get(name), device, dtype, size) for size in head_sizes)
        function = next((one.function for one in probes if one.function is not None), None)
        if function is not None:
            found[name] = function
    return found


class QuickestKernel:
    """The choice of kernels for one model: ``rivals`` by the names of their backends, and the host's own.

    ``file`` keeps the times for the next start; None keeps them in this object.
    """

    def __init__(
        self, rivals: Mapping[str, AttentionFunction], device: torch.device, dtype: torch.dtype, file: Path | None
    ) -> None:
        self._rivals = rivals
        self.names = (OWN, *rivals)
        self._device, self._dtype = device, dtype
        self._kept = KeptTimes(file)
        self._chosen: dict[object, Chosen] = {}
        self._without_memory = False
        self._lines: dict[str, None] = {}

    def choose(self, own: AttentionFunction, inputs: Inputs) -> Chosen:
        """Return the kernel for a call; the host's own for one with a mask, and in compiled code.

        The first call of its kind is timed, which waits for the device: nothing can be timed while code is traced.
        """
        q, k, v, mask, *_ = inputs
        if mask is not None or is_compiling():
            return OWN, None
        signature = (q.shape, k.shape, v.shape, q.dtype)
        chosen = self._chosen.get(signature)
        if chosen is None:
            if self._without_memory or len(self._chosen) >= MOST_SHAPES or _is_recording(q):
                return OWN, None
            try:
                chosen = self._timed(own, inputs)
            except KernelFailed:  # only when it was called again and again; the host's own is asked below
                chosen = OWN, None
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._without_memory = True  # until the next run
                return OWN, None
            self._chosen[signature] = chosen
        return chosen

    def began(self) -> None:
        """Time kernels again where memory had run out: it may have been freed."""
        self._without_memory = False

    def save(self) -> None:
        """Write the times to their file."""
        self._kept.save()

    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    @torch.inference_mode()
    def _timed(self, own: AttentionFunction, inputs: Inputs) -> Chosen:
        call = AttentionCall.of(*inputs[:3])
        if call.query_heads == call.key_heads:
            heads = _timed_heads(call.batch, call.query_tokens, call.key_tokens, call.head_dim)
            q, k, v = (tensor[:, :heads] for tensor in inputs[:3])
            inputs = inputs._replace(q=q, k=k, v=v)
        functions = {OWN: partial(own, inputs)}
        for name, rival in self._rivals.items():
            if get(name).refusal(call) is not None:
                continue
            function = partial(rival, inputs)
            try:
                function()
            except Exception as error:  # a kernel that cannot run is not the quickest
                if is_out_of_memory(error):
                    raise
            else:
                functions[name] = function
        if len(functions) == 1:
            return OWN, None
        section = f"{where(self._device, self._dtype)} | attention: {', '.join(functions)}"
        sizes = f"{tuple(inputs.q.shape)} x {tuple(inputs.k.shape)}".replace(" ", "")
        measure = partial(interleaved_seconds, self._device, list(functions.values()))
        seconds = dict(zip(functions, self._kept.get(section, sizes, measure, len(functions)), strict=True))
        best = min(seconds, key=lambda name: seconds[name])
        if seconds[best] * CLEARLY >= seconds[OWN]:
            best = OWN
        times = ", ".join(f"{name} {value * 1e3:.3g} ms" for name, value in seconds.items())
        kind = f"{call.query_tokens} x {call.key_tokens} tokens, head size {call.head_dim}, {short(call.dtype)}"
        self._lines[f"timed for {kind}: {times}; {best} is used"] = None
        return best, self._rivals.get(best)


def _timed_heads(batch: int, query_tokens: int, key_tokens: int, head_dim: int) -> int:
    return max(1, int(LARGEST // (4 * batch * query_tokens * key_tokens * head_dim)))


def _is_recording(tensor: Tensor) -> bool:
    """Return whether a CUDA graph is being recorded, in which nothing may wait for the device."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
