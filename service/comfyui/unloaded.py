"""The network that a file holds, without its weights: read from the file's header, in about a tenth of a second."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ...optimizers.in_comfyui.structure.protocols import BaseModel, ModelPatcher
from .machine import host_device

_MOST_BYTES = 100 * 2**20
"""The header of a safetensors file is no larger."""

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""By their names in such a header."""

_QUANTIZED = ".comfy_quant"
"""End of the name of the tensor in which ComfyUI's files describe a quantised layer: JSON, in bytes."""


def model_file(folder: str, name: str) -> Path | None:
    """Return a file in one of ComfyUI's folders of models; None where it is not there."""
    import folder_paths

    path = folder_paths.get_full_path(folder, name)
    return None if path is None else Path(path)


def network_in(path: Path) -> tuple[ModelPatcher, frozenset[str]] | None:
    """Return a MODEL with its weights on torch's device ``meta``, and ComfyUI's names of the formats that layers have.

    None where ComfyUI cannot tell what a file holds.
    """
    from comfy.model_patcher import ModelPatcher as Patcher

    try:
        model, formats = _model_in(path, path.stat().st_mtime_ns)
        return Patcher(model, load_device=host_device(), offload_device=torch.device("cpu")), formats
    except Exception:  # of ComfyUI's own code, which expects the weights themselves; a damaged file
        return None


@lru_cache(maxsize=4)  # ComfyUI writes two lines into its log for each
def _model_in(path: Path, _changed: int) -> tuple[BaseModel, frozenset[str]]:
    import comfy.model_detection
    import comfy.model_management
    import comfy.utils

    weights, prefix = _zeros(path)
    config = comfy.model_detection.model_config_from_unet(weights, prefix)
    if config is None:
        raise ValueError("ComfyUI does not know this network.")
    plain, allowed = config.quant_config is None, config.supported_inference_dtypes
    stored = comfy.model_management.unet_dtype(
        model_params=comfy.utils.calculate_parameters(weights, prefix),
        supported_dtypes=list(allowed),
        weight_dtype=comfy.utils.weight_dtype(weights, prefix) if plain else None,
    )
    computed = comfy.model_management.unet_manual_cast(stored if plain else None, host_device(), allowed)
    config.set_inference_dtype(stored, computed)
    about = (weight for name, weight in weights.items() if name.startswith(prefix) and name.endswith(_QUANTIZED))
    formats = frozenset(json.loads(bytes(one.tolist()))["format"] for one in about)
    return config.get_model(weights, prefix, device="meta"), formats


def _zeros(path: Path) -> tuple[dict[str, torch.Tensor], str]:
    """Return zeros in the shapes of a file's tensors, which take no memory, and the prefix of its network's names.

    What describes quantised layers has its own numbers. `ValueError` for another kind of file.
    """
    import comfy.model_detection
    import comfy.utils

    weights: dict[str, torch.Tensor] = {}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > _MOST_BYTES:
            raise ValueError("This is no safetensors file.")
        header: dict[str, Any] = json.loads(file.read(size))
        metadata = header.pop("__metadata__", None)
        for name, about in header.items():
            weights[name] = torch.zeros((), dtype=_DTYPES[about["dtype"]]).expand(about["shape"])
            if name.endswith(_QUANTIZED):
                begin, end = about["data_offsets"]
                file.seek(8 + size + begin)
                weights[name] = torch.frombuffer(bytearray(file.read(end - begin)), dtype=torch.uint8)
    prefix = comfy.model_detection.unet_prefix_from_state_dict(weights)
    weights, _ = comfy.utils.convert_old_quants(weights, prefix, metadata)
    return weights, prefix
