"""A workflow that can be made faster, and how the page asks for that."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from executing import node

SAMPLING = {"seed": 7, "steps": 20, "cfg": 7.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
LINKS = {"model": ["2", 0], "positive": ["3", 0], "negative": ["3", 0], "latent_image": ["4", 0]}
CACHE = {"reuse_threshold": 0.2, "start_percent": 0.15, "end_percent": 0.95, "verbose": False}

PROMPT: dict[str, Any] = {
    "1": node("CheckpointLoaderSimple", ckpt_name="x"),
    "2": node("EasyCache", model=["1", 0], **CACHE),
    "3": node("CLIPTextEncode", clip=["1", 1], text="a fox"),
    "4": node("EmptyLatentImage", width=64, height=64, batch_size=1),
    "5": node("KSampler", **LINKS, **SAMPLING),
    "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
    "7": node("SaveImage", images=["6", 0], filename_prefix="x"),
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
    from paceline.service.faster.job_store import faster_payload

    return faster_payload(sent, NODES)


def with_other_attention(monkeypatch: Any) -> None:
    """Let ComfyUI's own attention be another than torch's, as far as it says: the networks have theirs already."""
    from comfy.ldm.modules import attention

    monkeypatch.setattr(attention, "optimized_attention_masked", attention.attention_split)


def job_of(state: dict[str, Any]) -> Any:
    """Return the job that an answer is of."""
    from paceline.service.faster.job_store import JOBS

    return JOBS.known(state["job"])


def on_device(monkeypatch: Any, device: str, **can: bool) -> None:
    """Let plans be made for a device."""
    from paceline.service.apply_recipe import Machine
    from paceline.service.faster import plan

    monkeypatch.setattr(plan, "machine_here", lambda: Machine(device, **can))
