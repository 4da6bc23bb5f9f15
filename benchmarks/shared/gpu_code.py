"""What torch.compile makes for an NVIDIA GPU, on a machine that has none: the kernels it generates, and their cubins.

Inductor is Python, so a CPU build of torch has all of it. It asks one class for the device's properties, and Triton
asks one for the device to compile for: both are answered here in the name of an H100. The wrapper that inductor writes
is read and not run; the Triton kernels in it are compiled by Triton's own ptxas for each architecture.

Only for a process of its own: what is answered here holds for all of it.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

BACKEND = "gpu_code"
"""The name under which torch.compile knows this backend, see :func:`pretend`."""

SHARED_MEMORY = {80: 166912, 89: 101376, 90: 232448, 120: 101376}
"""Bytes that one block of a kernel may use, by compute capability (CUDA C++ Programming Guide, technical specifications
per compute capability): A100, RTX 40, H100, RTX 50."""

_CAPABILITY = 90
_H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=_CAPABILITY // 10,
    minor=_CAPABILITY % 10,
    total_memory=80 << 30,
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block_optin=SHARED_MEMORY[_CAPABILITY],
    L2_cache_size=50 << 20,
    warp_size=32,
    gcnArchName="",
)
_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('\w+', '''(.*?)''', device_str='cuda'\)", re.M | re.S)


class _Read(Exception):
    """Inductor's wrapper has been read, and need not be loaded."""


@dataclass(frozen=True)
class Code:
    """What inductor generated for one graph.

    Attributes:
        text: the whole wrapper, a Python module.
    """

    text: str

    @property
    def kernels(self) -> dict[str, str]:
        """The source of each Triton kernel, by its name."""
        return dict(_KERNEL.findall(self.text))

    @property
    def launches(self) -> Counter[str]:
        """What one call launches: ``triton`` for generated kernels, and each operator of a library by its name."""
        call = self.text[self.text.index("def call(") :]
        found = Counter({"triton": len(re.findall(r"^\s+\w+\.run\(", call, re.M))})
        found.update(re.findall(r"\bextern_kernels\.(\w+)\(", call))
        found.update(name.partition(".")[0] for name in re.findall(r"\btorch\.ops\.\w+\.([\w.]+)\(", call))
        return found


_found: list[Code] = []


def pretend(triton: Path) -> None:
    """Let torch and Triton generate for an H100 in this process, and register the backend ``gpu_code``.

    Args:
        triton: the folder into which the package was installed.
    """
    sys.path.append(str(triton))
    _pretend_device()
    _pretend_driver()
    _attend_as_a_gpu()
    from torch._dynamo import register_backend
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
    config.compile_threads = 1
    config.fx_graph_cache = False
    config.shape_padding = False  # it times matrix products on the device
    config.joint_graph_constant_folding = False  # it computes constants on the device
    GraphLowering.save_output_code = staticmethod(_read)
    register_backend(_backend, name=BACKEND)


@contextmanager
def generated() -> Iterator[list[Code]]:
    """Collect what is generated inside."""
    _found.clear()
    found: list[Code] = []
    yield found
    found.extend(_found)


def compile_kernel(task: tuple[str, str, tuple[int, ...]]) -> tuple[str, dict[int, int], str]:
    """Compile a Triton kernel of inductor's to cubins, with each of the configurations that it would try.

    Args:
        task: the kernel's name, its source, and the compute capabilities, e.g. 90.

    Returns:
        The name, the number of cubins by capability, and the first error or nothing.
    """
    from torch._inductor.codecache import PyCodeCache

    name, source, capabilities = task
    made: dict[int, int] = {}
    try:
        kernel = getattr(PyCodeCache.load(source), name)
        for capability in capabilities:
            kernel.device_props = kernel.device_props._replace(cc=capability, major=capability // 10)
            for config in kernel.configs:
                result = kernel._precompile_config(config)
                shared = getattr(result.kernel, "shared", None)
                shared = result.kernel.metadata.shared if shared is None else shared
                if shared > SHARED_MEMORY[capability]:
                    raise MemoryError(f"{shared} bytes of shared memory for {config}")
                made[capability] = made.get(capability, 0) + 1
    except Exception as error:
        return name, made, f"{type(error).__name__}: {error}"
    return name, made, ""


def _pretend_device() -> None:
    from torch._dynamo import device_interface

    class Pretended(device_interface.CudaInterface):
        class Worker(device_interface.CudaInterface.Worker):
            current_device = staticmethod(lambda: 0)
            get_device_properties = staticmethod(lambda device=None: _H100)

        current_device = staticmethod(lambda: 0)
        device_count = staticmethod(lambda: 1)
        is_available = staticmethod(lambda: True)
        get_device_properties = staticmethod(lambda device=None: _H100)
        get_compute_capability = staticmethod(lambda device=None: _CAPABILITY)
        is_bf16_supported = staticmethod(lambda including_emulation=False: True)
        is_triton_capable = staticmethod(lambda device=None: True)
        raise_if_triton_unavailable = staticmethod(lambda device=None: None)

    device_interface.init_device_reg()
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, Pretended)
    # Parts of inductor ask torch itself. Whether there is a GPU stays as it is: ComfyUI asks that.
    torch.cuda.get_device_properties = lambda device=None: _H100
    torch.cuda.get_device_capability = lambda device=None: divmod(_CAPABILITY, 10)
    torch.cuda.current_device = lambda: 0


def _pretend_driver() -> None:
    import triton
    from triton.backends import Backend, backends
    from triton.backends.compiler import GPUTarget

    class Driver:
        """Knows what to compile for, and cannot launch."""

        is_active = staticmethod(lambda: True)
        get_current_device = staticmethod(lambda: 0)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", _CAPABILITY, 32))

    nvidia = backends["nvidia"]
    backends.clear()
    backends["nvidia"] = Backend(compiler=nvidia.compiler, driver=Driver)
    triton.runtime.driver.set_active(Driver())


def _attend_as_a_gpu() -> None:
    """Let scaled dot product attention be one kernel, as on a GPU: a CPU build of torch would write it out."""
    from torch._C import DispatchKey

    @torch.ops.aten.scaled_dot_product_attention.default.py_impl(DispatchKey.CompositeImplicitAutograd)
    def attend(q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0, causal: bool = False, **more: Any) -> Any:
        scale = more.get("scale") or q.shape[-1] ** -0.5
        if mask is None and q.dtype in (torch.float16, torch.bfloat16):
            rest = -q.shape[-1] % 8
            if rest:
                q, k, v = (torch.nn.functional.pad(part, (0, rest)) for part in (q, k, v))
            out = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, scale=scale)[0]
            return out[..., :-rest] if rest else out
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.where(mask, 0.0, float("-inf")).to(q.dtype)
        if mask is not None:
            mask = mask.expand(*q.shape[:-1], k.shape[-2])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(q, k, v, mask, False, dropout, causal, scale=scale)[0]


def _read(text: str) -> None:
    _found.append(Code(text))
    raise _Read


def _backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Let inductor generate, and return what answers with fake tensors."""
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(lowered: torch.fx.GraphModule, inputs: list[torch.Tensor], **options: Any) -> Callable[..., Any]:
        kept = copy.deepcopy(lowered)
        try:
            compile_fx_inner(lowered, inputs, **options)
        except Exception as error:
            if not isinstance(error, _Read) and not isinstance(getattr(error, "inner_exception", None), _Read):
                raise
        return make_boxed_func(kept.forward)

    return compile_fx(graph, example_inputs, inner_compile=inner)
