"""Write an int8 MODEL to a safetensors file that ComfyUI's own loaders read, with or without this pack."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from ...optimizers.core.errors import UnsupportedModel
from ...optimizers.core.files import require_space, write_atomically
from ...optimizers.in_comfyui.int8_linear import int8_layers
from ...optimizers.in_comfyui.second_weights.clone import require_plain_weights
from ...optimizers.in_comfyui.structure.model_facts import describe_model, require_model
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher


def save_int8_model(patcher: ModelPatcher, path: Path, prompt: Any = None, workflow: Any = None) -> None:
    """Write the network of a MODEL, with its LoRAs in it, as ComfyUI's node ModelSave does; whole, or not at all.

    ``prompt``, ``workflow``: the graph and what the page adds to it, which go into the file's header.

    Raises:
        UnsupportedModel: if no layer of the MODEL is in int8, or its weights are foreign.
        NotEnoughSpace: if it would not fit.
    """
    import comfy.model_management
    import folder_paths
    from comfy_extras.nodes_model_merging import save_checkpoint

    require_model(patcher)
    require_plain_weights("Save int8 Model", patcher.model, describe_model(patcher))
    if not int8_layers(patcher.model.diffusion_model):
        raise UnsupportedModel(
            f"This {describe_model(patcher)} has no layers in int8, so there is nothing to save.",
            "Put Quantize int8 before this node, or save the model with ComfyUI's ModelSave.",
        )
    require_space(path.parent, comfy.model_management.module_size(patcher.model.diffusion_model))

    def write(temporary: Path) -> None:
        Path(folder_paths.get_temp_directory()).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder_paths.get_temp_directory()) as folder:
            save_checkpoint(
                patcher, filename_prefix=path.stem, output_dir=folder, prompt=prompt, extra_pnginfo=workflow
            )
            shutil.move(next(Path(folder).iterdir()), temporary)

    write_atomically(path, write)
