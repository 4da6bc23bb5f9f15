"""The video transformer that learns moving icons: ComfyUI's own Wan in small, trained as its family is."""

from __future__ import annotations

import argparse
from typing import Any

import icon_flow
import icon_net
import torch
from comfy_host import in_process
from torch import nn


def build(args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, dict[str, Any]]:
    """Return an untrained Wan network and its configuration, which goes into the weights file.

    ``args.channels``: width; ``args.mult``: number of blocks.
    """
    in_process.bootstrap(cpu=device.type == "cpu")
    import comfy.model_management
    import comfy.ops
    from comfy.ldm.wan.model import WanModel

    comfy.model_management.in_training = True  # ComfyUI's kernel for rotary embeddings has no gradient
    settings = {
        "image_model": "wan2.1",
        "model_type": "t2v",
        "patch_size": [1, 2, 2],
        "in_dim": 4,
        "out_dim": 4,
        "dim": args.channels,
        "ffn_dim": 4 * args.channels,
        "freq_dim": 128,
        "text_dim": args.context,
        "num_heads": args.heads,
        "num_layers": int(args.mult),
    }
    network = WanModel(**settings, dtype=torch.float32, operations=comfy.ops.disable_weight_init)
    icon_flow.initialise(network, "cross_attn.o", "head.head", "time_projection.1")
    return network, settings


class Net(icon_net.Net):
    """Wan plus text table."""

    def forward(self, noisy: torch.Tensor, level: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Predict noise - video for noisy videos [B, 4, F, H, W], noise levels [B] in 0..1 and word ids."""
        text = self.embedding[ids] + self.position
        with icon_flow.attention_for(noisy.device):
            return self.unet(noisy, level * 1000, context=text)
