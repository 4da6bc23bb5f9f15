"""A real server with our pack, the nodes of these tests, and LoRA files that fit their models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comfy_host import in_process
from comfy_host.server import ComfyServer

NODES = Path(__file__).parent / "trust_nodes"
LORA_FOR = ("sd15", "flux", "wan")


def write_loras(folder: Path) -> list[Path]:
    """Write a LoRA for some of the kinds of models; others show what happens where no name fits."""
    in_process.bootstrap()
    import torch
    from comfy_host import checkpoints, transformers
    from safetensors.torch import save_file

    made = []
    for kind in LORA_FOR:
        model = checkpoints.tiny_sd15(width=32, context=48) if kind == "sd15" else transformers.build(kind)
        generator = torch.Generator().manual_seed(1)
        tensors = {}
        for name, weight in model.model.state_dict().items():
            if name.endswith(".weight") and weight.dim() == 2 and ("attn" in name or "mlp" in name or "ff" in name):
                stem = name.removesuffix(".weight")
                tensors[f"{stem}.lora_up.weight"] = torch.randn(weight.shape[0], 2, generator=generator) * 0.05
                tensors[f"{stem}.lora_down.weight"] = torch.randn(2, weight.shape[1], generator=generator) * 0.05
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / f"{kind}.safetensors")
        made.append(folder / f"{kind}.safetensors")
    return made


def trust_server(loras: list[Path], packs: Sequence[Path] = (), **options: Any) -> ComfyServer:
    """Return a server that is not started yet; ``packs``: folders of other node packs."""
    return ComfyServer(custom_nodes=[NODES, *packs], models={"loras": loras}, **{"cpu": True, **options})
