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

    def execute(cls: Any, **inputs: Any) -> Any:
        given = instead(**inputs)
        return io.NodeOutput(*given) if isinstance(given, tuple) else io.NodeOutput(given)

    return execute


def _upscaled(image: torch.Tensor, **_: Any) -> torch.Tensor:
    return interpolate(image.movedim(-1, 1), scale_factor=2.0).movedim(1, -1)


def _tracked(images: torch.Tensor, **_: Any) -> dict[str, Any]:
    """Return the tracks of one thing that is everywhere, packed in bits."""
    frames, height, width, _ = images.shape
    packed = torch.full((frames, 1, height, width // 8), 255, dtype=torch.uint8)
    return {"packed_masks": packed, "orig_size": (height, width)}


def _warped(width: int, height: int, length: int, batch_size: int, **_: Any) -> dict[str, torch.Tensor]:
    """Return noise for a latent of VOID, whose frames come in pairs."""
    frames = ((length - 1) // 4 + 1) // 2 * 2
    size = (batch_size, 16, frames, height // 8, width // 8)
    return {"samples": torch.randn(size, generator=torch.Generator().manual_seed(4))}


_INSTEAD = {
    "LoadBackgroundRemovalModel": lambda **_: None,
    "LoadMoGeModel": lambda **_: None,
    "MoGeInference": lambda image, **_: image,
    "MoGeRender": lambda moge_geometry, **_: moge_geometry,
    "OpticalFlowLoader": lambda **_: None,
    "RemoveBackground": lambda image, **_: torch.ones(image.shape[:3]),
    "SAM3_Detect": lambda image, **_: (torch.ones(image.shape[:3]), [[] for _ in image]),
    "SAM3_VideoTrack": _tracked,
    "VOIDWarpedNoise": _warped,
    "UpscaleModelLoader": lambda **_: None,
    "ImageUpscaleWithModel": _upscaled,
}
