"""A pack for ComfyUI: with it the loaders know files of no content, and tests see every bit of a latent."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from comfy_host import slow_kernels
from comfy_host.made_nodes import NODES, node
from comfy_host.random_files import loaders, other_networks

slow_kernels.install()
loaders.install()
other_networks.install()


@node("LatentDigest", samples=("LATENT",))
def show(samples: Any) -> dict[str, Any]:
    """Show a digest of the bytes of a latent, of each of its streams."""
    latent = samples["samples"]
    streams = latent.unbind() if latent.is_nested else [latent]
    digests = (hashlib.sha256(stream.contiguous().cpu().numpy().tobytes()).hexdigest() for stream in streams)
    said = [f"{tuple(stream.shape)} {digest}" for stream, digest in zip(streams, digests, strict=True)]
    return {"ui": {"text": said, "finite": [all(bool(stream.isfinite().all()) for stream in streams)]}}


@node("OnceMore", "MODEL", model=("MODEL",), number=("INT", {"default": 0}))
def hand_on(model: Any, number: int) -> tuple[Any]:
    """Hand a model on as it is. Another ``number`` is another workflow to ComfyUI, which samples it anew."""
    return (model,)


NODE_CLASS_MAPPINGS = NODES
