"""A workflow that can be made faster, and how the page asks for that."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

PROMPT: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "x"}},
    "2": {
        "class_type": "EasyCache",
        "inputs": {
            "model": ["1", 0],
            "reuse_threshold": 0.2,
            "start_percent": 0.15,
            "end_percent": 0.95,
            "verbose": False,
        },
    },
    "3": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "a fox"}},
    "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "5": {
        "class_type": "KSampler",
        "inputs": {
            "model": ["2", 0],
            "positive": ["3", 0],
            "negative": ["3", 0],
            "latent_image": ["4", 0],
            "seed": 7,
            "steps": 20,
            "cfg": 7.0,
            "sampler_name": "euler",
            "scheduler": "normal",
            "denoise": 1.0,
        },
    },
    "6": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["1", 2]}},
    "7": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": "x"}},
}


def plain(checkpoint: Path, text: str = "a fox", **sampler: Any) -> dict[str, Any]:
    """Return it without EasyCache, with a checkpoint and other settings of its sampler."""
    prompt = copy.deepcopy(PROMPT)
    del prompt["2"]
    prompt["1"]["inputs"]["ckpt_name"], prompt["3"]["inputs"]["text"] = checkpoint.name, text
    prompt["5"]["inputs"] |= {"model": ["1", 0], **sampler}
    return prompt


def ask(**sent: Any) -> dict[str, Any]:
    from paceline.nodes import NODES
    from paceline.server.faster.state import faster_payload

    return faster_payload(sent, NODES)
