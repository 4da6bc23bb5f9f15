"""The nodes Quantize int8 and Save int8 Model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from comfy_api.latest import io

from ..optimizers.core.activity import Summary
from ..optimizers.core.phrases import phrase
from ..optimizers.in_comfyui.comfy_int8 import quantize
from ..optimizers.in_comfyui.int8_linear import int8_layers
from ..optimizers.in_comfyui.structure.protocols import ModelPatcher
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.quantization.int8_settings import QuantizationSettings
from ..service.comfyui.output_files import OutputFiles, save_int8_model
from .common import ADVANCED, Made, OptimizingNode, TechniqueNode, setting_input


class PacelineQuantizeInt8(TechniqueNode):
    """Compute the linear layers that gain from it in 8-bit integers."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        setting = partial(setting_input, QuantizationSettings)
        return cls.schema(
            "Quantize int8",
            "Computes linear layers in int8 where that is faster on this machine, which it measures (of SDXL none on "
            "an H100 or H200). Their weights need half the memory of 16 bits. LoRAs work before and after it.",
            "w8a8, torchao, quantization, low memory, vram, speed, faster",
            inputs=[
                io.Model.Input("model", tooltip="A full-precision model (fp16, bf16 or fp32)."),
                setting(
                    "preset",
                    "Largest error of a layer's output: quality allows least, speed most. Layers with a larger error, "
                    "or without a gain in int8, stay in full precision.",
                ),
                setting(
                    "mode",
                    "int8: weights and arithmetic, for speed. weight_only: only the weights, to save memory; costs a "
                    "little speed and changes the image less.",
                ),
                setting(
                    "include",
                    "Layers that are quantised whatever their speed and error: comma-separated names or patterns, "
                    "e.g. *.attn2.*, time_embed*. The output layers lists all names.",
                    advanced=True,
                ),
                setting(
                    "exclude",
                    "Layers that stay in full precision: comma-separated names or patterns, e.g. attn2, *.ff.*.",
                    advanced=True,
                ),
                setting(
                    "device",
                    "Where the weights are quantised, one layer at a time. auto: the GPU where there is one.",
                    advanced=True,
                ),
            ],
            outputs=[io.String.Output("layers", display_name="layers")],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        technique = quantize(model, QuantizationSettings(**settings))
        policy = technique.policy
        lines = "\n".join((policy.describe(), *policy.details(), "", policy.table()))
        return ModelTarget(model), technique, lines


class PacelineSaveInt8Model(OptimizingNode):
    """Write an int8 model to a file that ComfyUI loads without this pack."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Save int8 Model",
            "Saves a model that Quantize int8 made as safetensors in ComfyUI's own int8 format, LoRAs included. "
            "Load Diffusion Model reads it, with or without Paceline, and gives the same image.",
            "export int8, ModelSave, quantized checkpoint",
            category=ADVANCED,
            inputs=[
                io.Model.Input("model"),
                io.String.Input(
                    "filename_prefix",
                    default="diffusion_models/int8",
                    tooltip="Folder and name in ComfyUI's output folder. Load Diffusion Model lists the files in its "
                    "subfolder diffusion_models.",
                ),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )

    @classmethod
    def apply(cls, model: ModelPatcher, filename_prefix: str) -> io.NodeOutput:
        output, hidden = OutputFiles(filename_prefix), cls.hidden
        path, entry = output.path(".safetensors"), output.entry(".safetensors")
        save_int8_model(model, path, getattr(hidden, "prompt", None), getattr(hidden, "extra_pnginfo", None))
        shown = f"{Path(entry['subfolder'], path.name)} ({path.stat().st_size / 1e6:.1f} MB)"
        differs = any(getattr(layer, "weight_only", False) for layer in int8_layers(model.model.diffusion_model))
        computed = "ComfyUI computes these layers in int8, and mode weight_only in floating point"
        details = [f"The image will differ a little: {computed}."] if differs else []
        cls.announce(Summary("active", phrase("saved {file}", file=shown), details=tuple(details)))
        return io.NodeOutput(ui={"text": ("\n".join([shown, *details]),)})
