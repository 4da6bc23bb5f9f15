"""Where the time of a step goes: real profiles of torch, kernels of a device as data."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
from paceline.service.comfyui.profiling import SLICES, Operation, operations_of, slices_of
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent


def profiled(work) -> tuple:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        work()
    return operations_of(profiler.events())


def least_slices(work) -> dict[str, float]:
    """Return the least of three profiles in each slice: an operation that had to wait for its core looks long once."""
    runs = [slices_of(*profiled(work), 1.0) for _ in range(3)]
    return {name: min(run[name] for run in runs) for name in SLICES if name != "gaps"}


X, ROWS, IMAGE = torch.randn(2, 4, 512, 64), torch.randn(512, 512), torch.randn(1, 32, 128, 128)
LINEAR, CONVOLUTION, NORM = torch.nn.Linear(512, 512), torch.nn.Conv2d(32, 32, 3), torch.nn.LayerNorm(64)
WORK = {
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(X, X, X),
    "linear": lambda: LINEAR(ROWS),
    "convolution": lambda: CONVOLUTION(IMAGE),
    "norm_elementwise": lambda: NORM(X).sigmoid(),
    "copies": lambda: torch.cat([X, X]),
}


@pytest.mark.parametrize("name", WORK)
def test_every_kind_of_work_is_known(name):
    WORK[name]()  # the first call also sets up the kernels
    operations, kernels = profiled(WORK[name])
    busy = sum(operation.seconds for operation in operations)
    found = slices_of(operations, kernels, busy)
    assert set(found) == set(SLICES)
    assert sum(found.values()) == pytest.approx(busy)
    least = least_slices(WORK[name])
    assert max(least, key=least.get) == name


def test_attention_without_a_fused_operator_is_attention():
    found = least_slices(lambda: (X @ X.transpose(-1, -2)).softmax(-1) @ X)
    assert found.pop("attention") > 5 * sum(found.values())


def test_waiting_for_python_is_a_gap():
    def slow() -> None:
        torch.ones(8) + 1
        time.sleep(0.05)

    operations, kernels = profiled(slow)
    assert slices_of(operations, kernels, 0.05)["gaps"] > 0.04


def test_what_names_a_span_of_kernels_is_no_kernel():
    """On a GPU torch.compile puts such an event around all kernels of a graph."""
    made = partial(FunctionEvent, 1, thread=1, device_type=DeviceType.CUDA, use_device="cuda")
    kernel = made("gemm", start_us=10, end_us=30)
    span = made("Torch-Compiled Region: 0/0", start_us=0, end_us=50, is_user_annotation=True)
    assert operations_of([span, kernel]) == ([], {"gemm": pytest.approx(20e-6)})


def test_on_a_device_its_kernels_count_and_not_the_processors_time():
    operations = [
        Operation("aten::addmm", 0.9, ("aten::linear",), (("ampere_bf16_gemm", 0.03),)),
        Operation("aten::mul", 0.9, (), (("vectorized_elementwise_kernel", 0.01),)),
        Operation("cudaGraphLaunch", 0.9),
    ]
    kernels = {"ampere_bf16_gemm": 0.03, "vectorized_elementwise_kernel": 0.01, "flash_fwd_kernel": 0.04}
    found = slices_of(operations, kernels, 0.13)
    assert found == pytest.approx(
        {"linear": 0.03, "norm_elementwise": 0.01, "attention": 0.04, "convolution": 0, "copies": 0, "gaps": 0.05}
    )
