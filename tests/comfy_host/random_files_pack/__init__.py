"""A pack for ComfyUI: with it the loaders know files of no content, and tests see every bit of a latent."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from comfy_host import slow_kernels
from comfy_host.random_files import loaders, other_networks

slow_kernels.install()
loaders.install()
other_networks.install()


class LatentDigest:
    """Show a digest of the bytes of a latent, of each of its streams."""

    RETURN_TYPES = ()
    FUNCTION = "show"
    CATEGORY = "tests"
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"samples": ("LATENT",)}}

    def show(self, samples: Any) -> dict[str, Any]:
        latent = samples["samples"]
        streams = latent.unbind() if latent.is_nested else [latent]
        said = [
            f"{tuple(stream.shape)} {hashlib.sha256(stream.contiguous().cpu().numpy().tobytes()).hexdigest()}"
            for stream in streams
        ]
        finite = all(bool(stream.isfinite().all()) for stream in streams)
        return {"ui": {"text": said, "finite": [finite]}}


class OnceMore:
    """Hand a model on as it is. Another ``number`` is another workflow to ComfyUI, which samples it anew."""

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "hand_on"
    CATEGORY = "tests"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"model": ("MODEL",), "number": ("INT", {"default": 0})}}

    def hand_on(self, model: Any, number: int) -> tuple[Any]:
        return (model,)


NODE_CLASS_MAPPINGS = {"LatentDigest": LatentDigest, "OnceMore": OnceMore}
