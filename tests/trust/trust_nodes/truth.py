"""What really happened, counted by torch and not by our pack."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from comfy_host.made_nodes import node
from torch.overrides import TorchFunctionMode

from .leaks import leaks

_NAME = ("STRING", {"default": "truth"})
_counted: dict[str, list[Any]] = {}
"""By name: what TrustSteps saw, or TrustTruth: for each call of the network, the tokens of each attention call."""


class _Attention(TorchFunctionMode):
    """Note the sizes of each call of PyTorch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[int, int]] = []

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is torch.nn.functional.scaled_dot_product_attention:
            query, key = args[:2]
            self.sizes.append((query.shape[-2], key.shape[-2]))
        return function(*args, **(kwargs or {}))


@node("TrustTruth", "MODEL", model=("MODEL",), name=_NAME)
def count(model: Any, name: str) -> tuple[Any]:
    """Count the calls of the network and of attention while this MODEL is sampled."""
    import comfy.patcher_extension

    calls = _counted[name] = []
    while len(_counted) > 8:
        del _counted[next(iter(_counted))]

    def wrapper(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with _Attention() as seen:
            result = executor(*args, **kwargs)
        calls.append(seen.sizes)
        return result

    clone = model.clone()
    clone.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.APPLY_MODEL, "trust_truth", wrapper)
    return (clone,)


@node("TrustSteps", "MODEL", model=("MODEL",), name=_NAME)
def look_at_steps(model: Any, name: str) -> tuple[Any]:
    """Note what the network was called for while this MODEL is sampled; nothing of it is traced by a compiler.

    What is counted is a list of runs, each a list of evaluations, each a list of calls, each the kinds of its rows:
    0 is the positive pass, 1 the negative one.
    """
    from comfy.patcher_extension import WrappersMP

    runs: list[Any] = []
    _counted[name] = runs

    def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        runs.append([])
        return executor(*args, **kwargs)

    def evaluation(executor: Any, *args: Any, **kwargs: Any) -> Any:
        runs[-1].append([])
        return executor(*args, **kwargs)

    def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
        options = kwargs["transformer_options"] if "transformer_options" in kwargs else args[5]
        runs[-1][-1].append(list(options["cond_or_uncond"]))
        return executor(*args, **kwargs)

    clone = model.clone()
    kinds = {WrappersMP.OUTER_SAMPLE: run, WrappersMP.PREDICT_NOISE: evaluation, WrappersMP.APPLY_MODEL: call}
    for kind, wrapper in kinds.items():
        clone.add_wrapper_with_key(kind, "trust_steps", wrapper)
    return (clone,)


@node("TrustKeep", samples=("LATENT",), name=_NAME, optional={"truth": ("STRING", {"default": ""})})
def keep(samples: dict[str, Any], name: str, truth: str = "") -> dict[str, Any]:
    """Write a latent to a file, and show its hash and what was counted."""
    import folder_paths
    from safetensors.torch import save_file

    latent = samples["samples"].detach().cpu().contiguous()
    path = Path(folder_paths.get_output_directory(), "trust", f"{name}.safetensors")
    path.parent.mkdir(exist_ok=True)
    save_file({"samples": latent}, path)
    digest = hashlib.sha256(latent.float().numpy().tobytes()).hexdigest()
    return {"ui": {"text": [json.dumps({"digest": digest, "truth": _counted.get(truth)})]}}


@node("TrustMemory", again=("INT", {"default": 0, "min": 0, "max": 2**32}))
def memory(again: int) -> dict[str, Any]:
    """Show what this process holds, after all that can go has gone."""
    import comfy.model_management

    gc.collect()
    tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    found = {
        "tensors": len(tensors),
        "objects": len(gc.get_objects()),
        "resident_kb": resident,
        "loaded_models": len(comfy.model_management.current_loaded_models),
        "modules": sum(isinstance(thing, torch.nn.Module) for thing in gc.get_objects()),
        **leaks(),
    }
    return {"ui": {"text": [json.dumps(found)]}}
