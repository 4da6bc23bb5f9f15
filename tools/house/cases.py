"""What is drawn: each technique alone and together, on small models of ComfyUI's and pipelines of diffusers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch

Draw = Callable[[], tuple[Any, ...]]
"""Gives tensors."""

Chain = tuple[tuple[str, dict[str, Any]], ...]
"""Nodes, by their ids without *Paceline*, with inputs; others have the node's defaults."""

MERGE = {"method": "merge", "ratio": 0.3}
AROUND = {**MERGE, "merge_crossattn": True, "merge_mlp": True, "max_downsample": "2"}
KEYS = {"method": "kv_downsample", "ratio": 0.75, "max_downsample": "2"}
COMPILED = {"backend": "eager", "strict": True}
ALONE: dict[str, Chain] = {
    "tokens quality": (("ApplyToMe", {"preset": "quality"}),),
    "tokens merge": (("ApplyToMe", MERGE),),
    "tokens merge around all": (("ApplyToMe", AROUND),),
    "tokens merge, cells 3 x 1": (("ApplyToMe", {**MERGE, "sx": 3, "sy": 1, "max_downsample": "8"}),),
    "tokens keys": (("ApplyToMe", KEYS),),
    "tokens keys, kept": (("ApplyToMe", {**KEYS, "residual": "auto"}),),
    "fuse": (("FuseQKV", {}),),
    **{f"int8 {preset}": (("QuantizeInt8", {"preset": preset}),) for preset in ("quality", "balanced", "speed")},
    "int8 weight_only": (("QuantizeInt8", {"mode": "weight_only"}),),
    **{f"precision {dtype}": (("ModelPrecision", {"dtype": dtype}),) for dtype in ("bf16", "fp16", "fp32")},
}
COMPILE: dict[str, Chain] = {
    "compile in one piece": (("CompileUNet", {**COMPILED, "fullgraph": True}),),
    "compile repeated blocks": (("CompileUNet", {**COMPILED, "backend": "aot_eager", "scope": "repeated_blocks"}),),
    "compile any size": (("CompileUNet", {**COMPILED, "dynamic": "true", "channels_last": True}),),
    "compile inductor": (("CompileUNet", {**COMPILED, "backend": "inductor"}),),
}
ALL: Chain = (("ModelPrecision", {"dtype": "fp32", "channels_last": True}), ("QuantizeInt8", {"include": "attn"}))
ALL += (*ALONE["fuse"], ("SetAttentionProcessor", {"backend": "sdpa_math"}), ("ApplyToMe", {"method": "merge"}))
BLOCKS = COMPILE["compile repeated blocks"]
STACKS = {"stack": (*ALL, *BLOCKS), "stack, other order": (*BLOCKS, *ALL[::-1]), "stack without compile": ALL}
TRANSFORMERS: dict[str, Chain] = {
    "fuse": ALONE["fuse"],
    "precision bf16": ALONE["precision bf16"],
    "int8 all": (("QuantizeInt8", {"include": "*"}),),
    "stack": (*ALONE["fuse"], ("QuantizeInt8", {"include": "*"}), *ALL[3:4], *BLOCKS),
}
HALF, DECODER = ("VAEPrecision", {"dtype": "bf16"}), ("CompileVAE", {**COMPILED, "channels_last": True})
VAE: dict[str, Chain] = {"compile": (DECODER,), "precision bf16": (HALF,), "stack": (HALF, DECODER)}


def comfyui() -> Iterator[tuple[str, Draw]]:
    """Yield name and drawing of every case in ComfyUI."""
    from comfy_host import checkpoints, in_process, pack, transformers, vaes

    in_process.bootstrap()
    import_module("folder_paths").set_user_directory(tempfile.mkdtemp(prefix="user_"))
    nodes = pack.load_nodes()

    def draw(make: Any, sample: Any, chain: Chain, kind: str = "model") -> tuple[Any, ...]:
        ours = make()
        for node, inputs in chain:
            puts = nodes[f"Paceline{node}"].GET_SCHEMA().inputs
            defaults = {put.id: put.default for put in puts if getattr(put, "default", None) is not None}
            defaults |= {name: value for name, value in (("strict", True), ("residual", "off")) if name in defaults}
            with torch.inference_mode():
                ours = nodes[f"Paceline{node}"].execute(**{**defaults, **inputs, kind: ours}).result[0]
        return sample(ours)

    def unet(model: Any, batch: int = 1, sides: tuple[int, int] = (24, 16), **options: Any) -> Any:
        texts = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
        return (in_process.sample(model, *texts, torch.zeros(batch, 4, *sides), seed=7, **options),)

    def transformer(name: str, model: Any) -> Any:
        patch = transformers.ALL[name].patch
        texts = (transformers.conditioning(name, seed=seed) for seed in (1, 2))
        latent = transformers.latent(name, 24 * patch, 16 * patch)
        return in_process.sample(model, *texts, latent, seed=7, scheduler="simple").unbind()

    def both_ways(size: tuple[int, ...], images: int, vae: Any) -> Any:
        generator = torch.Generator().manual_seed(3)
        latent, pixels = torch.randn(size, generator=generator), torch.rand(images, 64, 64, 3, generator=generator)
        with torch.inference_mode():
            return vae.decode(latent), vae.encode(pixels)

    puts = nodes["PacelineSetAttentionProcessor"].GET_SCHEMA().inputs
    backends = next(put.options for put in puts if put.id == "backend")
    every = ALONE | {f"attention {name}": (("SetAttentionProcessor", {"backend": name}),) for name in backends}
    sd15 = partial(checkpoints.tiny_sd15, width=32, context=48)
    sdxl = partial(checkpoints.sdxl_layout, width=32, head_channels=32, context=64)
    tokens = {name: chain for name, chain in ALONE.items() if name.startswith("tokens")}
    few = tokens | {name: every[name] for name in ("attention sdpa_math", "int8 speed", "fuse")} | {"stack": ALL}
    subjects: list[tuple[str, Any, Any, Mapping[str, Chain]]] = [
        ("sd15", sd15, partial(unet, steps=3), every),
        ("sd15 in 8 steps", sd15, partial(unet, steps=8), tokens),
        ("sd15 two images", sd15, partial(unet, batch=2, sides=(18, 30)), tokens),
        ("small unet", checkpoints.smallest_unet, unet, COMPILE | STACKS),
        ("sdxl", sdxl, partial(unet, sides=(48, 32), steps=1), few),
    ]
    for name in transformers.ALL:
        subjects += [(name, partial(transformers.build, name), partial(transformer, name), TRANSFORMERS)]
    for title, make, sample, settings in subjects:
        for name, chain in settings.items():
            yield f"comfyui {title}: {name}", partial(draw, make, sample, chain)
    for make, size, images in (vaes.kl, (1, 4, 8, 12), 1), (vaes.wan, (1, 16, 2, 8, 8), 5):
        for name, chain in VAE.items():
            sample = partial(both_ways, size, images)
            yield f"comfyui vae {make.__name__}: {name}", partial(draw, make, sample, chain, "vae")


def diffusers() -> Iterator[tuple[str, Draw]]:
    """Yield name and drawing of every case with diffusers."""
    from diffusers_host.pipelines import random_pipeline
    from paceline import Attention, Compile, FuseQKV, QuantizeInt8, TokenMerging, optimize

    alone: dict[str, Any] = {
        "tokens merge around all": TokenMerging(**{**AROUND, "max_downsample": 2}),
        "tokens keys": TokenMerging(**{**KEYS, "max_downsample": 2}),
        **{f"attention {name}": Attention(name) for name in ("sdpa", "sdpa_math", "vanilla")},
        "fuse": FuseQKV(),
        **{f"int8 {preset}": QuantizeInt8(preset=preset) for preset in ("quality", "balanced", "speed")},
        "int8 within blocks, weight_only": QuantizeInt8(exclude="embed", mode="weight_only"),
        "compile": Compile(**COMPILED),
        "compile regional": Compile(backend="aot_eager", strict=True, regional=True),
    }
    together = (FuseQKV(), QuantizeInt8(include="attn"), alone["tokens keys"], Attention("sdpa_math"), alone["compile"])
    chosen: dict[str, tuple[Any, ...]] = {name: (setting,) for name, setting in alone.items()}
    chosen |= {"stack": together, "stack, other order": together[::-1]}

    def draw(name: str, settings: tuple[Any, ...]) -> tuple[Any, ...]:
        named = random_pipeline(name, width=32)
        optimize(named.pipe, *settings)
        return (named.call(["a lighthouse", "a fox"], size=128, steps=2, seed=7, output_type="pt"),)

    for name in ("sd15", "sdxl", "flux", "sd3"):
        for title, settings in chosen.items():
            if name in ("flux", "sd3"):  # token merging is for UNets
                settings = tuple(one for one in settings if not isinstance(one, TokenMerging))
            if settings:
                yield f"diffusers {name}: {title}", partial(draw, name, settings)
