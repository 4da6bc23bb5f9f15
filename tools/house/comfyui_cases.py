"""What is drawn in ComfyUI: every technique alone and together, on small models of ComfyUI's own classes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from comfy_host import checkpoints, in_process, pack, transformers, vaes

from .drawing import Draw, digest, graphs

Chain = tuple[tuple[str, dict[str, Any]], ...]
"""Nodes, by their ids without *Paceline*, with inputs; others have the node's defaults."""

_nodes: dict[str, Any] = {}


def tokens(**inputs: Any) -> Chain:
    return (("ApplyToMe", inputs),)


def compiled(node: str = "CompileUNet", **inputs: Any) -> Chain:
    return ((node, {"backend": "eager", "strict": True, **inputs}),)


def int8(**inputs: Any) -> Chain:
    return (("QuantizeInt8", inputs),)


def precision(node: str) -> dict[str, Chain]:
    return {f"precision {dtype}": ((node, {"dtype": dtype}),) for dtype in ("bf16", "fp16", "fp32")}


FUSE: Chain = (("FuseQKV", {}),)
EXACT: Chain = (("SetAttentionProcessor", {"backend": "sdpa_math"}),)
TOKENS = {
    "tokens preset quality": tokens(preset="quality"),
    **{f"tokens {method}": tokens(method=method, ratio=0.3) for method in ("auto", "merge", "kv_downsample")},
    **{f"tokens merge, max_downsample {n}": tokens(method="merge", max_downsample=n) for n in ("1", "8")},
    "tokens merge around all": tokens(method="merge", merge_crossattn=True, merge_mlp=True, max_downsample="2"),
    "tokens merge, cells 3 x 1": tokens(method="merge", sx=3, sy=1),
}
KEPT = {
    "tokens preset quality": tokens(preset="quality"),
    **{f"tokens {method}": tokens(method=method, residual="auto") for method in ("merge", "kv_downsample")},
}
"""In so many steps that a difference is kept."""
COMPILE = {
    "compile eager in one piece": compiled(fullgraph=True),
    "compile aot_eager": compiled(backend="aot_eager"),
    "compile repeated blocks": compiled(scope="repeated_blocks"),
    "compile any size": compiled(dynamic="true", channels_last=True),
    "compile inductor": compiled(backend="inductor"),
}
INT8 = {f"int8 {preset}": int8(preset=preset) for preset in ("quality", "balanced", "speed")}
INT8["int8 weight_only"] = int8(mode="weight_only")
ALL = (("ModelPrecision", {"dtype": "fp32", "channels_last": True}), *int8(include="attn"), *FUSE, *EXACT)
ALL += tokens(method="merge")
STACKS = {"stack": (*ALL, *compiled()), "stack, other order": (*compiled(), *ALL[::-1]), "stack without compile": ALL}
TRANSFORMERS = {
    "fuse": FUSE,
    "int8 all": int8(include="*"),
    "precision bf16": (("ModelPrecision", {"dtype": "bf16"}),),
    "compile repeated blocks": compiled(scope="repeated_blocks"),
    "stack": (*FUSE, *int8(include="*"), *EXACT, *compiled()),
}
VAE = {"compile": compiled("CompileVAE", channels_last=True), **precision("VAEPrecision")}
VAE["stack"] = (("VAEPrecision", {"dtype": "bf16"}), *compiled("CompileVAE", channels_last=True))


def run(node: str, **inputs: Any) -> Any:
    """Execute a node as ComfyUI does, and return its outputs; one that cannot help refuses."""
    node = f"Paceline{node}"
    inputs_of = _nodes[node].GET_SCHEMA().inputs
    defaults = {put.id: put.default for put in inputs_of if getattr(put, "default", None) is not None}
    defaults |= {name: value for name, value in (("strict", True), ("residual", "off")) if name in defaults}
    with torch.inference_mode():
        return _nodes[node].execute(**{**defaults, **inputs}).result


def draw(make: Callable[[], Any], sample: Callable[[Any], Any], chain: Chain, kind: str = "model") -> dict[str, Any]:
    """Draw with the nodes of a chain on a ``kind`` of object, without them, and with them taken off again."""
    plain = ours = make()
    without = digest(*sample(plain))
    for node, inputs in chain:
        outputs = run(node, **{kind: ours}, **inputs)
        ours = outputs[0]
    image = digest(*sample(ours))
    removed = run("RemoveOptimizations", **{kind: ours})[("model", "vae", "control_net").index(kind)]
    restored = {digest(*sample(one)) for one in (removed, plain)}
    return {"image": image, "plain": without, "restored": " and ".join(sorted(restored)), **graphs()}


def unet(model: Any, batch: int = 1, sides: tuple[int, int] = (24, 16), **options: Any) -> tuple[Any, ...]:
    texts = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
    return (in_process.sample(model, *texts, torch.zeros(batch, 4, *sides), seed=7, **options),)


def transformer(name: str, model: Any) -> tuple[Any, ...]:
    patch = transformers.ALL[name].patch
    texts = (transformers.conditioning(name, seed=seed) for seed in (1, 2))
    latent = transformers.latent(name, 24 * patch, 16 * patch)
    return tuple(in_process.sample(model, *texts, latent, seed=7, scheduler="simple").unbind())


def with_lora() -> Any:
    """Return SD 1.5's layout with a patch on every query weight."""
    model, generator = checkpoints.tiny_sd15(width=32, context=48).clone(), torch.Generator().manual_seed(5)
    weights = {key: value for key, value in model.model.state_dict().items() if key.endswith("to_q.weight")}
    noise = {key: torch.randn(value.shape, generator=generator) * 0.05 for key, value in weights.items()}
    model.add_patches({key: ("diff", (value,)) for key, value in noise.items()}, 0.7)
    return model


def both_ways(size: tuple[int, ...], images: int, vae: Any) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(3)
    latent, pixels = torch.randn(size, generator=generator), torch.rand(images, 64, 64, 3, generator=generator)
    with torch.inference_mode():
        return vae.decode(latent), vae.encode(pixels)


def controlled(control_net: Any) -> tuple[Any, ...]:
    model = checkpoints.smallest_unet()
    hint = torch.rand(1, 24 * 8, 16 * 8, 3, generator=torch.Generator().manual_seed(1))
    texts = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
    apply = import_module("nodes").ControlNetApplyAdvanced().apply_controlnet
    texts = apply(*texts, control_net, hint, 1.0, 0.0, 1.0)
    return (in_process.sample(model, *texts, torch.zeros(1, 4, 24, 16), seed=7),)


def cases() -> Iterator[tuple[str, Draw]]:
    """Yield name and drawing of every case."""
    in_process.bootstrap()
    import_module("folder_paths").set_user_directory(tempfile.mkdtemp(prefix="user_"))
    _nodes.update(pack.load_nodes())
    backends = next(put for put in _nodes["PacelineSetAttentionProcessor"].GET_SCHEMA().inputs if put.id == "backend")
    every = {**TOKENS, **INT8, **precision("ModelPrecision"), "fuse": FUSE}
    every |= {f"attention {name}": (("SetAttentionProcessor", {"backend": name}),) for name in backends.options}
    sd15 = partial(checkpoints.tiny_sd15, width=32, context=48)
    sdxl = partial(checkpoints.sdxl_layout, width=32, head_channels=32, context=64)
    few = ("tokens preset", "tokens merge", "tokens kv", "attention sdpa", "int8 sp", "fuse")
    chosen = {name: chain for name, chain in every.items() if name.startswith(few)} | {"stack": ALL}
    subjects: list[tuple[str, Any, Any, dict[str, Chain]]] = [
        ("sd15", sd15, partial(unet, steps=3), every),
        ("sd15 in 8 steps", sd15, partial(unet, steps=8), KEPT),
        ("sd15 two images", sd15, partial(unet, batch=2, sides=(18, 30)), TOKENS),
        ("small unet", checkpoints.smallest_unet, unet, COMPILE | STACKS),
        ("sd15 with a LoRA", with_lora, unet, STACKS | INT8),
        ("sdxl", sdxl, partial(unet, sides=(48, 32), steps=1), chosen),
    ]
    for name in transformers.ALL:
        subjects += [(name, partial(transformers.build, name), partial(transformer, name), TRANSFORMERS)]
    for title, make, sample, settings in subjects:
        for name, chain in settings.items():
            yield f"comfyui {title}: {name}", partial(draw, make, sample, chain)
    for title, make, size, images in (
        ("kl", vaes.kl, (1, 4, 8, 12), 1), ("taesd", vaes.taesd, (1, 4, 8, 12), 1),
        ("wan", vaes.wan, (1, 16, 2, 8, 8), 5), ("ltx", vaes.ltx, (1, 128, 2, 4, 4), 9),
    ):  # fmt: skip
        for name, chain in VAE.items():
            yield f"comfyui vae {title}: {name}", partial(draw, make, partial(both_ways, size, images), chain, "vae")
    control = partial(draw, checkpoints.smallest_controlnet, controlled, compiled("CompileControlNet"), "control_net")
    yield "comfyui controlnet: compile", control
