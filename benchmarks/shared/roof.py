"""The physical limit that times are held to: a model's multiplications at the speed of this device's matrix product.

Nothing that computes the whole model in this dtype can be faster. The operations are always the baseline's, so what
leaves work out (fewer tokens) or computes in another dtype (int8) can come nearer than it could otherwise, or pass it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

SHORTEST_SEARCH = 2.0
"""Seconds for which the fastest product is looked for: other programs slow down some, and a GPU has to wake up."""


def operations(run: Callable[[], Any]) -> int:
    """Return the floating point operations of all matrix products and convolutions that ``run`` makes.

    A multiplication with its addition counts as two, as manufacturers count.
    """
    # torch counts every fused attention but the one for processors.
    fused_on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    counts = {fused_on_cpu: lambda query, key, value, *_, **__: int(sdpa_flop_count(query, key, value))}
    with FlopCounterMode(display=False, custom_mapping=counts) as counter:
        run()
    return int(counter.get_total_flops())


def peak_speed(dtype: torch.dtype, device: torch.device, quick: bool = False) -> float:
    """Return the operations a second of the fastest large matrix product on this device.

    ``quick``: for rehearsals, with small matrices and without looking for long.
    """
    from paceline.optimizers.core.devices import synchronize

    side = 512 if quick else 8192 if device.type == "cuda" else 2048
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    fastest, begun, count = float("inf"), time.perf_counter(), 0
    while count < 8 or time.perf_counter() - begun < (0.0 if quick else SHORTEST_SEARCH):
        synchronize(device)
        started = time.perf_counter()
        a @ b
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - started)
        count += 1
    return 2 * side**3 / fastest


def speed_note(speeds: dict[torch.dtype, float]) -> dict[str, str]:
    """Return a note for a file of results: what ``roof_share`` refers to."""
    measured = ", ".join(f"{str(dtype)[6:]} {speed / 1e12:.4g} TFLOP/s" for dtype, speed in speeds.items())
    of = "operations of the baseline at the speed of the largest matrix product here"
    return {"of the roof": f"{of} ({measured}), over the time"}


def place(low: torch.dtype = torch.float16) -> tuple[torch.device, torch.dtype]:
    """Return where benchmarks run: on the GPU in ``low``, or on the processor in fp32."""
    on_gpu = torch.cuda.is_available()
    return torch.device("cuda" if on_gpu else "cpu"), low if on_gpu else torch.float32


class Counted:
    """Counts the pictures that a network computes: what a wrapper of ComfyUI spares it is not counted."""

    def __init__(self, network: Any) -> None:
        self.pictures = 0.0
        self._forward = network._forward  # ComfyUI's wrappers end before it
        network._forward = self

    def __call__(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the network."""
        self.pictures += len(x)
        return self._forward(x, *args, **kwargs)
