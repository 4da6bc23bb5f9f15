"""The image transformer of the icons: ComfyUI's own NextDiT (Lumina 2, Z-Image) in small, trained by flow matching.

One sequence of text and picture goes through all blocks; places are rotary, the noise level modulates every block.
Pictures of 64 x 64 have 1,024 tokens. Smaller ones are seen as the same picture from farther away: tokens stand
farther apart, and a noise level is called by that of 64 x 64 at which as much of the picture can be seen. So what is
learned of few tokens is known of many, and most of the training can be done where a step costs a sixteenth.
"""

from __future__ import annotations

import argparse
from typing import Any

import icon_flow
import icon_net
import torch
from comfy_host import in_process
from torch import nn

SIDE = 64
"""Of the pictures that the finished model draws."""


def build(args: argparse.Namespace, device: torch.device) -> tuple[nn.Module, dict[str, Any]]:
    """Return an untrained NextDiT and its configuration, which goes into the weights file.

    ``args.channels``: width; ``args.mult``: number of blocks, beside one for the text and one for the picture;
    ``args.size``: side of the pictures, which ComfyUI's class does not read, but the loader does.
    """
    in_process.bootstrap(cpu=device.type == "cpu")
    import comfy.model_management
    import comfy.ops
    from comfy.ldm.lumina.model import NextDiT

    comfy.model_management.in_training = True  # ComfyUI's kernel for rotary embeddings has no gradient
    head = args.channels // args.heads
    side = head * 3 // 16 * 2  # of a head, for each direction in the picture
    settings = {
        "image_model": "lumina2",
        "patch_size": 2,
        "in_channels": 4,
        "dim": args.channels,
        "cap_feat_dim": args.context,
        "n_layers": int(args.mult),
        "n_refiner_layers": 1,
        "n_heads": args.heads,
        "n_kv_heads": args.heads,
        "multiple_of": 64,
        "ffn_dim_multiplier": 8 / 3,
        "qk_norm": True,
        "axes_dims": [head - 2 * side, side, side],
        "axes_lens": [64, 512, 512],
        "rope_theta": 10000.0,
        "time_scale": 1000.0,
        "side": args.size,
    }
    network = NextDiT(**settings, dtype=torch.float32, operations=comfy.ops.disable_weight_init)
    icon_flow.initialise(network, "adaLN", "final_layer")
    return network, settings


class Net(icon_net.Net):
    """NextDiT plus text table."""

    def forward(self, noisy: torch.Tensor, level: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Predict noise - picture for noisy pictures [B, 4, H, W], noise levels [B] in 0..1 and word ids."""
        text = self.embedding[ids] + self.position
        apart = SIDE / noisy.shape[-1]
        middle = (apart - 1) / 2
        grid = {"scale_x": apart, "scale_y": apart, "shift_x": middle, "shift_y": middle}
        options = {"rope_options": grid}
        with icon_flow.attention_for(noisy.device):
            return self.unet(noisy, icon_flow.as_of(level, apart), text, text.shape[1], transformer_options=options)
