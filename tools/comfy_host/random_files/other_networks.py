"""Networks beside the diffusion model: templates get results of the right form instead of what they compute."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import interpolate


def install() -> None:
    """Let ComfyUI's nodes for such networks give these results."""
    import nodes

    for name, instead in _INSTEAD.items():
        node = nodes.NODE_CLASS_MAPPINGS.get(name)
        if node is not None:  # else of an older ComfyUI
            node.execute = classmethod(_executed(instead))


def _executed(instead: Any) -> Any:
    from comfy_api.latest import io

    return lambda cls, **inputs: io.NodeOutput(instead(**inputs))


def _upscaled(image: torch.Tensor, **_: Any) -> torch.Tensor:
    return interpolate(image.movedim(-1, 1), scale_factor=2.0).movedim(1, -1)


def _tracked(images: torch.Tensor, **_: Any) -> dict[str, Any]:
    """Return the tracks of one thing that is everywhere, packed in bits."""
    frames, height, width, _ = images.shape
    packed = torch.full((frames, 1, height, width // 8), 255, dtype=torch.uint8)
    return {"packed_masks": packed, "orig_size": (height, width)}


_INSTEAD = {
    "LoadBackgroundRemovalModel": lambda **_: None,
    "LoadMoGeModel": lambda **_: None,
    "MoGeInference": lambda image, **_: image,
    "MoGeRender": lambda moge_geometry, **_: moge_geometry,
    "RemoveBackground": lambda image, **_: torch.ones(image.shape[:3]),
    "SAM3_VideoTrack": _tracked,
    "UpscaleModelLoader": lambda **_: None,
    "ImageUpscaleWithModel": _upscaled,
}
