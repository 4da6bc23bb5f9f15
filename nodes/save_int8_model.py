"""The node Save int8 Model."""

from __future__ import annotations

import json
from pathlib import Path

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.phrases import phrase
from ..optimizers.hosts.comfyui.structure.protocols import ModelPatcher
from ..workbench.comfyui.int8_file import save_int8_model
from ..workbench.comfyui.output_files import OutputFiles
from .common import ADVANCED, OptimizingNode


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
            is_output_node=True,
        )

    @classmethod
    def apply(cls, model: ModelPatcher, filename_prefix: str) -> io.NodeOutput:
        output = OutputFiles(filename_prefix)
        path, entry = output.path(".safetensors"), output.entry(".safetensors")
        metadata = save_int8_model(model, path)
        shown = f"{Path(entry['subfolder'], path.name)} ({path.stat().st_size / 1e6:.1f} MB)"
        note = json.loads(metadata["paceline"]).get("note")
        details = [f"The image will differ a little: {note}"] if note else []
        cls.announce(Summary("active", phrase("saved {file}", file=shown), details=tuple(details)))
        return io.NodeOutput(ui={"text": ("\n".join([shown, *details]),)})
