"""The workflows of the demo, in ComfyUI's API format, and how they are changed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from comfy_host.client import Prompt
from comfy_host.workflow import with_defaults

LARGE_SIDE = 96
"""Of pictures by the model that was trained at 64: as many tokens as Stable Diffusion 1.5 has at 768 x 768."""
ICON_TEXTS = ("orange house shaded", "green cactus shaded", "purple fish flat")
PHOTO_TEXTS = ("a red fox in fresh snow", "an old harbour at dawn", "a bowl of ramen, close up")


class Workflows:
    """Makes workflows for a server; ``info`` is what it answers to ``/object_info``."""

    def __init__(self, info: dict[str, Any]) -> None:
        self._info = info

    def node(self, class_type: str, **inputs: Any) -> dict[str, Any]:
        """Return a node, with the defaults of all inputs that are not named."""
        return with_defaults(self._info, class_type, **inputs)

    def icons(self, steps: int, weights: str = "icons32.safetensors") -> Prompt:
        """Draw with a trained icon model."""
        encoder = ["model", 1]
        return {
            "model": self.node("IconModelLoader", weights=weights),
            "positive": self.node("IconTextEncode", text_encoder=encoder, text=ICON_TEXTS[0]),
            "negative": self.node("IconTextEncode", text_encoder=encoder, text=""),
            "latent": self.node("IconEmptyLatent"),
            "sampler": self._sampler(steps, 3.0),
            "decode": self.node("IconDecode", samples=["sampler", 0], scale=1),
            "save": self.node("SaveImage", images=["decode", 0], filename_prefix="demo"),
        }

    def large_icons(self, steps: int) -> Prompt:
        """Draw one of them larger, with the other trained model."""
        text = with_inputs(self.icons(steps, "icons64.safetensors"), "positive", text=ICON_TEXTS[1])
        return with_inputs(text, "latent", width=LARGE_SIDE, height=LARGE_SIDE)

    def checkpoint(self, path: Path, size: int, steps: int, cfg: float = 7.0) -> Prompt:
        """Draw with a checkpoint that ComfyUI's own loader reads."""
        clip = ["model", 1]
        return {
            "model": self.node("CheckpointLoaderSimple", ckpt_name=path.name),
            "positive": self.node("CLIPTextEncode", clip=clip, text=PHOTO_TEXTS[0]),
            "negative": self.node("CLIPTextEncode", clip=clip, text=""),
            "latent": self.node("EmptyLatentImage", width=size, height=size),
            "sampler": self._sampler(steps, cfg),
            "decode": self.node("VAEDecode", samples=["sampler", 0], vae=["model", 2]),
            "save": self.node("SaveImage", images=["decode", 0], filename_prefix="demo"),
        }

    def _sampler(self, steps: int, cfg: float) -> dict[str, Any]:
        links = {"model": ["model", 0], "positive": ["positive", 0], "negative": ["negative", 0]}
        links["latent_image"] = ["latent", 0]
        return self.node("KSampler", **links, steps=steps, cfg=cfg, sampler_name="euler", scheduler="normal")

    def through(self, prompt: Prompt, class_type: str, name: str = "", value: Any = None) -> Prompt:
        """Return a workflow whose sampler gets its model through one more node, with one of its inputs set."""
        given = {name: value} if name else {}
        added = self.node(class_type, model=prompt["sampler"]["inputs"]["model"], **given)
        return with_inputs({**prompt, class_type: added}, "sampler", model=[class_type, 0])

    def measured(self, prompt: Prompt, class_type: str, **inputs: Any) -> Prompt:
        """Return a workflow that ends with a node that samples by itself, set like the workflow's own sampler."""
        own, sampler = prompt["sampler"]["inputs"], self._info[class_type]["input"]["required"]
        inputs = {**{name: own[name] for name in sampler if name in own}, **inputs}
        if "vae" in prompt["decode"]["inputs"]:
            inputs["vae"] = prompt["decode"]["inputs"]["vae"]
        rest = {id: node for id, node in prompt.items() if id != "save"}
        return {**rest, "measured": self.node(class_type, **inputs)}


def with_inputs(prompt: Prompt, id: str, **inputs: Any) -> Prompt:
    """Return a copy in which a node has these inputs."""
    changed = copy.deepcopy(prompt)
    changed[id]["inputs"].update(inputs)
    return changed


def setting(prompt: Prompt, name: str) -> Any:
    """Return one of the sampler's settings."""
    return prompt["sampler"]["inputs"][name]
