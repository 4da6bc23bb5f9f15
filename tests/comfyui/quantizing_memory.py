"""Print as JSON how much memory Quantize int8 needs for a 16-bit model of SD 1.5's blocks. Run by a test."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import torch
from comfy_host import checkpoints, in_process, pack, standins


def look(process: Any, looks: list[int], ended: threading.Event) -> None:
    while not ended.wait(0.02):
        looks.append(process.memory_info().rss)


def main() -> None:
    standins.install()
    in_process.bootstrap()
    pack.load_pack()
    nodes = pack.load_nodes()
    import comfy.model_management
    import psutil
    from paceline.optimizers.in_comfyui.run.stack import stack_of

    node = nodes["PacelineQuantizeInt8"]
    settings = {"mode": "weight_only"}  # the same work, without timing each shape first
    node.execute(model=checkpoints.tiny_sd15(width=32, context=48), **settings)
    model = checkpoints.tiny_sd15(width=640, context=768, dtype=torch.float16)
    size = comfy.model_management.module_size(model.model)
    idle = psutil.Process().memory_info().rss
    looks, ended = [idle], threading.Event()
    watch = threading.Thread(target=look, args=(psutil.Process(), looks, ended))
    watch.start()
    converted = node.execute(model=model, **settings).result[0]
    ended.set()
    watch.join()
    chosen = [v for v in stack_of(converted).techniques[0].policy.choices.all if v.weight is not None]
    found = {
        "model": size,
        "most": size + max(looks) - idle,
        "linear_before": sum(choice.layer.nbytes for choice in chosen),
        "linear_after": sum(choice.weight.nbytes for choice in chosen),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
