"""The nodes of the icon models, and of the emoji model that the tests draw with."""

from __future__ import annotations

import comfy.model_management
import torch
from comfy_api.latest import ComfyExtension, io

from . import model as icons
from .counting import CountRows

CATEGORY = "icon model"
IconTextType = io.Custom("ICON_TEXT")


class IconModelLoader(io.ComfyNode):
    """Weights file -> MODEL and text encoder."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="IconModelLoader",
            display_name="Load Icon Model",
            category=CATEGORY,
            description="Loads a small diffusion model of icons or emoji. It draws in seconds on a CPU.",
            inputs=[
                io.Combo.Input(
                    "weights",
                    options=sorted(icons.files()),
                    default=icons.DEFAULT_WEIGHTS.name,
                    tooltip="Emoji, or icons where this repository is around the nodes.",
                ),
            ],
            outputs=[
                io.Model.Output(display_name="model"),
                IconTextType.Output(display_name="text_encoder"),
            ],
        )

    @classmethod
    def execute(cls, weights: str) -> io.NodeOutput:
        """Load the file; only names that the list offers get here."""
        return io.NodeOutput(*icons.load(icons.files()[weights]))


class IconTextEncode(io.ComfyNode):
    """Prompt -> CONDITIONING."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="IconTextEncode",
            display_name="Icon Text Encode",
            category=CATEGORY,
            description="Turns the words of a prompt into conditioning. Only words from training are known.",
            inputs=[
                IconTextType.Input("text_encoder"),
                io.String.Input(
                    "text",
                    default="red apple",
                    dynamic_prompts=True,
                    tooltip="Up to four words, for example: red apple, fox, birthday cake. Leave it empty for the "
                    "negative prompt. An unknown word stops with the list of all words.",
                ),
            ],
            outputs=[io.Conditioning.Output()],
        )

    @classmethod
    def execute(cls, text_encoder: icons.TextTable, text: str) -> io.NodeOutput:
        return io.NodeOutput(text_encoder(text))


class IconEmptyLatent(io.ComfyNode):
    """An empty LATENT in latent pixels, which here are picture pixels."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        tooltip = "In latent pixels, which are the pixels of the picture. The models were trained at 32, icons64 at 64."
        return io.Schema(
            node_id="IconEmptyLatent",
            display_name="Empty Icon Latent",
            category=CATEGORY,
            description="An empty latent for the sampler.",
            inputs=[
                io.Int.Input("width", default=32, min=8, max=512, step=1, tooltip=tooltip),
                io.Int.Input("height", default=32, min=8, max=512, step=1, tooltip=tooltip),
                io.Int.Input("batch_size", default=1, min=1, max=256, tooltip="Pictures to draw at once."),
            ],
            outputs=[io.Latent.Output()],
        )

    @classmethod
    def execute(cls, width: int, height: int, batch_size: int) -> io.NodeOutput:
        """Zeros [batch_size, 4, height, width]."""
        device = comfy.model_management.intermediate_device()
        return io.NodeOutput({"samples": torch.zeros(batch_size, 4, height, width, device=device)})


class IconDecode(io.ComfyNode):
    """LATENT -> IMAGE."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="IconDecode",
            display_name="Icon Decode",
            category=CATEGORY,
            description="Puts the drawn picture on white and enlarges it.",
            inputs=[
                io.Latent.Input("samples"),
                io.Int.Input(
                    "scale", default=8, min=1, max=64, tooltip="Image pixels per drawn pixel; 1 keeps it small."
                ),
            ],
            outputs=[io.Image.Output()],
        )

    @classmethod
    def execute(cls, samples: dict, scale: int) -> io.NodeOutput:
        return io.NodeOutput(icons.decode(samples, scale))


class IconExtension(ComfyExtension):
    """Lists the nodes for ComfyUI."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return [IconModelLoader, IconTextEncode, IconEmptyLatent, IconDecode, CountRows]
