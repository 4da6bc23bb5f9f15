"""Write an int8 MODEL to a safetensors file that ComfyUI's own loaders read, with or without this pack."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ...optimizers.core.errors import UnsupportedModel
from ...optimizers.core.files import require_space, write_atomically
from ...optimizers.core.technique import INT8
from ...optimizers.in_comfyui.quantization.comfy_int8 import Int8Quantization
from ...optimizers.in_comfyui.quantization.int8_linear import int8_layers
from ...optimizers.in_comfyui.run.stack import stack_of
from ...optimizers.in_comfyui.second_weights.clone import require_plain_weights
from ...optimizers.in_comfyui.structure.model_facts import describe_model, require_model
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher
from .machine import host_version

WEIGHT_ONLY = "ComfyUI computes these layers in int8; made with mode weight_only, which computes them in floating point"


def save_int8_model(patcher: ModelPatcher, path: Path) -> dict[str, str]:
    """Write the network of a MODEL, with its LoRAs in it, and return the file's metadata.

    Tensors and names are ComfyUI's own (its writer makes them): ``weight`` in int8, ``weight_scale`` and
    ``comfy_quant`` for each quantised layer, everything else as it was. Never pickle.

    Raises:
        UnsupportedModel: if no layer of the MODEL is in int8, or its weights are foreign.
        NotEnoughSpace: if it would not fit.
    """
    import comfy.model_management
    import comfy.sd

    require_model(patcher)
    require_plain_weights("Save int8 Model", patcher.model, describe_model(patcher))
    if not int8_layers(patcher.model.diffusion_model):
        raise UnsupportedModel(
            f"This {describe_model(patcher)} has no layers in int8, so there is nothing to save.",
            "Put Quantize int8 before this node, or save the model with ComfyUI's ModelSave.",
        )
    require_space(path.parent, comfy.model_management.module_size(patcher.model.diffusion_model))
    metadata = _metadata(patcher)

    def write(temporary: Path) -> None:
        comfy.sd.save_checkpoint(str(temporary), patcher, metadata=metadata, extra_keys=_prediction_keys(patcher))

    write_atomically(path, write)
    return metadata


def _metadata(patcher: ModelPatcher) -> dict[str, str]:
    technique = stack_of(patcher).find(INT8)
    content: dict[str, object] = {
        "made_by": "ComfyUI-Paceline, Save int8 Model",
        "format": 1,
        "comfyui": host_version(),
        "torch": torch.__version__,
        "loras": bool(patcher.patches),
    }
    if isinstance(technique, Int8Quantization):
        policy = technique.policy
        content["settings"] = {name: str(value) for name, value in vars(policy.settings).items()}
        if policy.settings.mode == "weight_only":
            content["note"] = WEIGHT_ONLY
        content["layers"] = {"int8": len(policy.choices.quantized), "all": len(policy.choices.all)}
    predicts = {"EPS": "epsilon", "V_PREDICTION": "v"}.get(patcher.model.model_type.name)
    return {"paceline": json.dumps(content)} | ({"modelspec.predict_key": predicts} if predicts else {})


def _prediction_keys(patcher: ModelPatcher) -> dict[str, torch.Tensor]:
    """Return the empty tensors by which ComfyUI's loaders know a network's prediction type."""
    import comfy.model_sampling

    sampling = patcher.get_model_object("model_sampling")
    keys: dict[str, torch.Tensor] = {}
    if isinstance(sampling, comfy.model_sampling.ModelSamplingContinuousEDM):
        if isinstance(sampling, comfy.model_sampling.V_PREDICTION):
            keys["edm_vpred.sigma_max"] = torch.tensor(sampling.sigma_max).float()
            keys["edm_vpred.sigma_min"] = torch.tensor(sampling.sigma_min).float()
    elif patcher.model.model_type.name == "V_PREDICTION":
        keys["v_pred"] = torch.tensor([])
        if getattr(sampling, "zsnr", False):
            keys["ztsnr"] = torch.tensor([])
    return keys
