"""What is drawn with diffusers: every setting alone and together, on the pack's small pipelines with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from diffusers_host.pipelines import random_pipeline

from .drawing import Draw, digest, graphs


def settings() -> dict[str, tuple[Any, ...]]:
    from paceline import Attention, Compile, FuseQKV, QuantizeInt8, TokenMerging

    compiled = Compile(backend="eager", strict=True)
    alone: dict[str, Any] = {
        **{f"tokens {method}": TokenMerging(method=method, ratio=0.3) for method in ("auto", "merge", "kv_downsample")},
        "tokens merge around all": TokenMerging(method="merge", merge_crossattn=True, merge_mlp=True, max_downsample=2),
        **{f"attention {name}": Attention(name) for name in ("sdpa", "sdpa_math", "vanilla")},
        "fuse": FuseQKV(),
        **{f"int8 {preset}": QuantizeInt8(preset=preset) for preset in ("balanced", "quality", "speed")},
        "int8 within blocks, weight_only": QuantizeInt8(exclude="embed", mode="weight_only"),
        "compile": compiled,
        "compile regional": Compile(backend="aot_eager", strict=True, regional=True),
    }
    keys = TokenMerging(method="kv_downsample", ratio=0.75)
    together = (FuseQKV(), QuantizeInt8(include="attn"), keys, Attention("sdpa_math"))
    stacks = {
        "stack": (*together, compiled),
        "stack, other order": (compiled, *reversed(together)),
        "stack with merge": (*together[:2], TokenMerging(method="merge"), together[3]),
    }
    return {**{name: (setting,) for name, setting in alone.items()}, **stacks}


def draw(name: str, chosen: tuple[Any, ...]) -> dict[str, Any]:
    from paceline import optimize, restore

    def drawn() -> str:
        return digest(named.call(["a lighthouse", "a fox"], size=128, steps=2, seed=7, output_type="pt"))

    named = random_pipeline(name, width=32)
    if name == "sd15-controlnet":  # its layers are made as zeros, which would hide what is computed
        network, generator = named.pipe.controlnet, torch.Generator().manual_seed(0)
        for layer in (*network.controlnet_down_blocks, network.controlnet_mid_block):
            torch.nn.init.normal_(layer.weight, std=0.1, generator=generator)
    plain = drawn()
    graphs()
    optimize(named.pipe, *chosen)
    found = {"image": drawn(), "plain": plain, **graphs()}
    restore(named.pipe)
    return {**found, "restored": drawn()}


def cases() -> Iterator[tuple[str, Draw]]:
    """Yield name and drawing of every case."""
    for name in ("sd15", "sd15-controlnet", "sdxl", "flux", "sd3"):
        for title, chosen in settings().items():
            if name in ("flux", "sd3"):  # token merging is for UNets
                chosen = tuple(one for one in chosen if type(one).__name__ != "TokenMerging")
            if chosen:
                yield f"diffusers {name}: {title}", partial(draw, name, chosen)
