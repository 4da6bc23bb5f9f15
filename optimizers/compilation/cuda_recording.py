"""One recording of kernels: a ``torch.cuda.CUDAGraph``, made so that a failure does no harm."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

import torch

from .failures import free_frames

Tree = Any
"""Tensors and plain values in nested tuples, lists and dicts."""

_WAIT = "called a synchronizing CUDA operation"
"""What torch warns of, if it is asked to, where the processor waits for the GPU."""

_recording = threading.Lock()
"""cudaMallocAsync allows one recording at a time in a process; ComfyUI samples on several GPUs in threads."""

_never_freed: list[Tree] = []
"""Outputs of recordings that never ran. Their memory is not there, and cudaMallocAsync ends the process if it is to
free such memory."""


class Recording(Protocol):
    """The kernels of one run; every replay writes to ``output``; ``held_bytes`` is device memory it keeps."""

    output: Tree
    held_bytes: int

    def replay(self) -> None:
        """Launch the kernels again."""


Record = Callable[[Callable[[], Tree], torch.device], Recording]
"""Makes a recording of a function that launches kernels on a device."""


class CudaRecording:
    """A recording as a ``torch.cuda.CUDAGraph``; RuntimeError if that fails, with the process as it was.

    Each has a memory pool of its own. With cudaMallocAsync, ComfyUI's choice, there are no pools: the driver gives
    recordings that run one after another the same memory. torch's own allocator gives back a shared pool only when the
    last recording in it is dropped, and cannot end it for one that has failed.

    ``run`` is called twice, first to let libraries allocate what they keep.
    """

    def __init__(self, run: Callable[[], Tree], device: torch.device) -> None:
        self._device = device
        self._graph = torch.cuda.CUDAGraph()
        self._free_before: int | None = None
        self.held_bytes = 0
        with _recording, torch.cuda.device(device):  # else the stream would be one of another GPU, and nothing recorded
            current, side = torch.cuda.current_stream(), _stream(device)
            side.wait_stream(current)
            with torch.cuda.stream(side):  # the caller's stream is current again afterwards, whatever happens
                place = _first_wait(run)
                torch.cuda.synchronize()
                if place:  # to try it all the same can end the process: see `_record`
                    raise RuntimeError(f"it waits for the GPU in the middle of a step: {place}")
                torch.cuda.empty_cache()  # torch's own allocator cannot use what lies there while it records
                self._free_before = torch.cuda.mem_get_info()[0]
                self._record(run)
            current.wait_stream(side)

    def _record(self, run: Callable[[], Tree]) -> None:
        pool = torch.cuda.graph_pool_handle()
        # Only what this thread does may not be recorded; others may go on using the GPU.
        self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            self.output = run()
        except BaseException as error:
            # As long as the recording goes on: cudaMallocAsync cannot free its tensors later, as they were never there,
            # and torch then ends the process, because it meets that error where it destroys a tensor.
            free_frames(error)
            self._end_failed(pool)
            raise
        try:
            self._graph.capture_end()
        except RuntimeError:
            self._end_pool(pool)
            raise

    def replay(self) -> None:
        if self._free_before is None:
            self._graph.replay()
            return
        try:
            self._graph.replay()  # cudaMallocAsync takes a recording's memory when it runs, and counts none
        except RuntimeError:
            _never_freed.append(self.output)
            raise
        torch.cuda.synchronize(self._device)
        self.held_bytes = max(0, self._free_before - torch.cuda.mem_get_info(self._device)[0])
        self._free_before = None

    def _end_failed(self, pool: Any) -> None:
        try:
            self._graph.capture_end()
        except RuntimeError:  # says once more that the capture is invalid, before it has ended what it began
            self._end_pool(pool)

    def _end_pool(self, pool: Any) -> None:
        """Tell the allocator that a capture is over; else cudaMallocAsync would free no memory any more."""
        self._graph.reset()
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            end = getattr(torch._C, name, None)
            if end is not None:
                with suppress(RuntimeError):  # it was ended after all
                    end(self._device.index, pool)
        with suppress(RuntimeError):
            _end_for_the_generator(self._device)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which recordings are made, one for each device as in ``torch.cuda.graph``.

    For each stream cuBLAS keeps up to 32 MiB for good, and torch gives out the same 32 streams again and again: those
    on which ComfyUI copies weights must not be among ours.
    """
    return torch.cuda.Stream(device)


def _first_wait(run: Callable[[], Tree]) -> str:
    """Run it once; return the file and line where it waited for the GPU first, or ""."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return next((f"{one.filename}:{one.lineno}" for one in heard if _WAIT in str(one.message)), "")


def _end_for_the_generator(device: torch.device) -> None:
    """Tell torch's generator of random numbers that a failed recording is over, by one that does not fail.

    Up to torch 2.11 nothing else does: drawing numbers on that GPU, and replaying any recording, would raise an error.
    """
    number, graph = torch.zeros(1, device=device), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin(capture_error_mode="thread_local")
    number.add_(1)
    graph.capture_end()
