"""A GPU's rules without a GPU: real networks on tensors that only say that they are on ``cuda``.

Under PyTorch's FakeTensorMode tensors have a device, a dtype and a shape, but no numbers. Reading a number, which on a
GPU waits for all work given to it, raises ``DataDependentOutputException``; so does everything whose size depends on
numbers. Tensors of two devices in one operation raise ``FakeTensorDeviceMismatchError``. Dtypes and shapes are those of
the real kernels. A CPU build of torch lacks one thing for it, a guard that makes a CUDA device the current one: a few
lines of C++, compiled once, supply a guard that does nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from .paths import cache_dir

CUDA = torch.device("cuda", 0)

_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, NoOpDeviceGuardImpl<DeviceType::CUDA>);
}
"""

# Operators that start nothing on a device: they only look at memory in another way, or ask for some.
_NO_LAUNCH = {"device", "dropout", "empty", "empty_like", "empty_strided", "new_empty", "promote_types", "result_type"}


@cache
def load_guard() -> None:
    """Make indexing and other operations on fake CUDA tensors possible; does nothing on a CUDA build of torch.

    Raises:
        RuntimeError: if there is no C++ compiler.
    """
    if torch.backends.cuda.is_built():
        return
    digest = hashlib.sha256(f"{_GUARD}{torch.__version__}{sysconfig.get_platform()}".encode()).hexdigest()[:12]
    library = cache_dir() / "fake_cuda" / f"guard-{digest}.so"
    if not library.is_file():
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            raise RuntimeError("Fake CUDA tensors need a C++ compiler (Debian: apt-get install g++).")
        library.parent.mkdir(parents=True, exist_ok=True)
        torch_folder = Path(torch.__file__).parent
        with tempfile.TemporaryDirectory(dir=library.parent) as new:  # another process may be making it too
            source, made = Path(new) / "guard.cpp", Path(new) / library.name
            source.write_text(_GUARD)
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-std=c++20", "-O0", f"-I{torch_folder / 'include'}", str(source),
                 "-o", str(made), f"-L{torch_folder / 'lib'}", "-lc10"],
                check=True,
            )  # fmt: skip
            made.replace(library)
    torch.ops.load_library(str(library))


def fake_cuda() -> FakeTensorMode:
    """Return a mode in which tensors can be made on ``cuda``; the functions below enter it where they need it."""
    load_guard()
    return FakeTensorMode(allow_non_fake_inputs=False)


def to_cuda(value: Any, mode: FakeTensorMode) -> Any:
    """Return ``value`` with its tensors as fake ones on ``cuda``, however nested."""
    if isinstance(value, torch.Tensor):
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=CUDA)
    if isinstance(value, dict):
        return {key: to_cuda(item, mode) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(to_cuda(item, mode) for item in value)
    return value


def move_network(network: torch.nn.Module, mode: FakeTensorMode) -> None:
    """Put the weights of a network on fake ``cuda``, in place."""
    done: dict[int, torch.Tensor] = {}
    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is None or isinstance(tensor, FakeTensor):
                    continue
                if id(tensor) not in done:
                    done[id(tensor)] = _moved(tensor, mode)
                tensors[name] = done[id(tensor)]
        for name, value in vars(module).items():  # tables that are no buffers
            if isinstance(value, torch.Tensor):
                vars(module)[name] = to_cuda(value, mode)


def _moved(tensor: Any, mode: FakeTensorMode) -> torch.Tensor:
    values = getattr(tensor, "_qdata", None)
    if values is None:
        fake = to_cuda(tensor.detach(), mode)
    else:  # one of ComfyUI's quantised tensors
        params = replace(tensor._params, scale=to_cuda(tensor._params.scale, mode))
        with mode:
            fake = type(tensor)(to_cuda(values, mode), tensor._layout_cls, params)
    with mode:
        return torch.nn.Parameter(fake, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else fake


class Launches(TorchDispatchMode):
    """Counts the operators that would start work on a device, by name, while it is on."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):  # e.g. a product whose result has another dtype
            self.counts[func.name()] += 1
            return func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        views = any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)
        if not views and name not in _NO_LAUNCH:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Recorded:
    """What a network was called with by a real sampler: arguments of ``BaseModel.apply_model``.

    ``options`` are its ``transformer_options``, without anything that nodes have put there.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]


def record_call(model: Any, sample: Callable[[Any], Any]) -> Recorded:
    """Return the first call of a MODEL's network while ``sample(model)`` runs it for real."""
    from comfy.patcher_extension import WrappersMP

    found: list[Recorded] = []

    def wrapper(executor: Any, *args: Any, **kwargs: Any) -> Any:
        if not found:
            arguments, named = list(args), dict(kwargs)
            options = arguments.pop(5) if len(arguments) > 5 else named.pop("transformer_options")
            kept = {key: value for key, value in options.items() if key not in ("wrappers", "callbacks", "patches")}
            found.append(Recorded(tuple(arguments), named, kept))
        return executor(*args, **kwargs)

    clone = model.clone()
    clone.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "record", wrapper)
    sample(clone)
    return found[0]


def move_model(model: Any, mode: FakeTensorMode) -> None:
    """Put a MODEL's network and noise schedule on fake ``cuda``, in place."""
    move_network(model.model, mode)
    model.model.device = CUDA


def run(model: Any, call: Recorded, mode: FakeTensorMode, batch: int = 1) -> tuple[torch.Tensor, Launches]:
    """Call a MODEL as :func:`answer` does; return its answer, and what that would launch."""
    launches = Launches()
    return answer(model, call, mode, batch, launches), launches


def answer(
    model: Any, call: Recorded, mode: FakeTensorMode, batch: int = 1, watch: AbstractContextManager[Any] | None = None
) -> torch.Tensor:
    """Return what a MODEL answers after :func:`move_model`, called as the sampler would while ``watch`` is on."""
    options = {**model.model_options.get("transformer_options", {}), **to_cuda(call.options, mode)}
    options |= {"wrappers": model.wrappers, "callbacks": model.callbacks}
    args = to_cuda(_repeated(call.args, batch), mode)
    kwargs = to_cuda(_repeated(call.kwargs, batch), mode)
    with torch.inference_mode(), mode, watch or nullcontext():
        result: torch.Tensor = model.model.apply_model(*args, **kwargs, transformer_options=options)
    return result


def _repeated(value: Any, batch: int) -> Any:
    """Return ``value`` with the first axis of its tensors ``batch`` times as long."""
    if isinstance(value, torch.Tensor):
        return value.repeat(batch, *[1] * (value.ndim - 1)) if value.ndim else value
    if isinstance(value, dict):
        return {key: _repeated(item, batch) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_repeated(item, batch) for item in value)
    return value
