"""The network that a file holds, without its weights: read from the file's header, in about a tenth of a second."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ...optimizers.hosts.comfyui.structure.protocols import BaseModel, ModelPatcher
from .machine import host_device

_MOST_BYTES = 100 * 2**20
"""The header of a safetensors file is no larger."""


def model_file(folder: str, name: str) -> Path | None:
    """Return a file in one of ComfyUI's folders of models; None where it is not there."""
    import folder_paths

    path = folder_paths.get_full_path(folder, name)
    return None if path is None else Path(path)


def network_in(path: Path) -> ModelPatcher | None:
    """Return a MODEL with its weights on torch's device ``meta``; None where ComfyUI cannot tell what a file holds."""
    from comfy.model_patcher import ModelPatcher as Patcher

    try:
        model = _model_in(path, path.stat().st_mtime_ns)
        patcher: ModelPatcher = Patcher(model, load_device=host_device(), offload_device=torch.device("cpu"))
        return patcher
    except Exception:  # of ComfyUI's own code, which expects the weights themselves; a damaged file
        return None


@lru_cache(maxsize=4)  # ComfyUI writes two lines into its log for each
def _model_in(path: Path, _changed: int) -> BaseModel:
    import comfy.model_detection

    weights = _zeros(path)
    prefix = comfy.model_detection.unet_prefix_from_state_dict(weights)
    config = comfy.model_detection.model_config_from_unet(weights, prefix)
    if config is None:
        raise ValueError("ComfyUI does not know this network.")
    model: BaseModel = config.get_model(weights, prefix, device="meta")
    return model


def _zeros(path: Path) -> dict[str, torch.Tensor]:
    """Return zeros in the shapes of a file's tensors, which take no memory; `ValueError` for another kind of file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > _MOST_BYTES:
            raise ValueError("This is no safetensors file.")
        header: dict[str, Any] = json.loads(file.read(size))
    zero = torch.zeros(())
    return {name: zero.expand(about["shape"]) for name, about in header.items() if name != "__metadata__"}
