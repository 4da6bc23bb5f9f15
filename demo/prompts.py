"""The two workflows of the demo, in ComfyUI's API format."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

Prompt = dict[str, dict[str, Any]]

EMOJI_STEPS, EMOJI_CFG = 20, 2.0


def nodes_of(prompt: Prompt, class_type: str) -> list[str]:
    """Return the ids of all nodes of a class."""
    return [key for key, node in prompt.items() if node["class_type"] == class_type]


def with_inputs(prompt: Prompt, class_type: str, **inputs: Any) -> Prompt:
    """Return a copy in which every node of a class has these inputs."""
    changed = copy.deepcopy(prompt)
    for key in nodes_of(changed, class_type):
        changed[key]["inputs"].update(inputs)
    return changed


def example_workflow(path: Path, object_info: dict[str, Any]) -> Prompt:
    """Load one of the shipped example workflows, as the frontend does before it queues it."""
    from comfy_host.workflow import to_api

    return to_api(json.loads(path.read_text(encoding="utf-8")), object_info)


def emoji_workflow(object_info: dict[str, Any], texts: list[str], seed: int, optimized: bool) -> Prompt:
    """Draw each text with the emoji model, with or without our two nodes; one sampler for each text."""
    from comfy_host.workflow import with_defaults

    prompt: Prompt = {
        "model": {"class_type": "EmojiModelLoader", "inputs": {"weights": "emoji32.safetensors"}},
        "negative": {"class_type": "EmojiTextEncode", "inputs": {"text_encoder": ["model", 1], "text": ""}},
        "latent": {"class_type": "EmojiEmptyLatent", "inputs": {"width": 32, "height": 32, "batch_size": 1}},
    }
    source = ["model", 0]
    if optimized:
        prompt["tome"] = with_defaults(object_info, "PacelineApplyToMe", model=source, method="merge")
        processor = {"model": ["tome", 0], "backend": "auto"}
        prompt["attention"] = {"class_type": "PacelineSetAttentionProcessor", "inputs": processor}
        source = ["attention", 0]
    for number, text in enumerate(texts):
        prompt[f"positive{number}"] = {
            "class_type": "EmojiTextEncode",
            "inputs": {"text_encoder": ["model", 1], "text": text},
        }
        prompt[f"sampler{number}"] = {
            "class_type": "KSampler",
            "inputs": {
                "model": source,
                "positive": [f"positive{number}", 0],
                "negative": ["negative", 0],
                "latent_image": ["latent", 0],
                "seed": seed + number,
                "steps": EMOJI_STEPS,
                "cfg": EMOJI_CFG,
                "sampler_name": "dpmpp_2m",
                "scheduler": "karras",
                "denoise": 1.0,
            },
        }
        # Scale 1: quality is measured on the pixels that were drawn, not on enlarged copies of them.
        decode = {"samples": [f"sampler{number}", 0], "scale": 1}
        prompt[f"decode{number}"] = {"class_type": "EmojiDecode", "inputs": decode}
        save = {"images": [f"decode{number}", 0], "filename_prefix": f"emoji/{text}"}
        prompt[f"save{number}"] = {"class_type": "SaveImage", "inputs": save}
    if optimized:
        report = {"model": source, "after": [f"sampler{len(texts) - 1}", 0]}
        prompt["report"] = {"class_type": "PacelineOptimizationReport", "inputs": report}
    return prompt

