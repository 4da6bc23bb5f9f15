"""What is drawn in ComfyUI: every technique alone and together, on small models of ComfyUI's own classes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from comfy_host import checkpoints, in_process, pack, transformers, vaes

from .comfyui_settings import COMPILE, INT8, KEPT, PRECISION, STACKS, TOKEN_REDUCTION, TRANSFORMERS, Step
from .digests import Draw, digest, graphs

_nodes: dict[str, Any] = {}


def run(node: str, **inputs: Any) -> Any:
    """Execute a node as ComfyUI does, inputs that are not given at their defaults, and return its outputs.

    Nodes that can hand on what they were given, where they cannot help, are told to refuse: so a refusal is compared.
    """
    schema = _nodes[node].GET_SCHEMA()
    defaults = {given.id: given.default for given in schema.inputs if getattr(given, "default", None) is not None}
    # What came later than the commits that are compared is as it was before: off.
    defaults |= {name: value for name, value in (("strict", True), ("residual", "off")) if name in defaults}
    with torch.inference_mode():
        return _nodes[node].execute(**{**defaults, **inputs}).result


def result(image: str, plain: str, *restored: str) -> dict[str, Any]:
    """Return what a case gave: the restored digests joined if they differ, and graphs of torch.compile, if any."""
    return {"image": image, "plain": plain, "restored": " and ".join(sorted(set(restored))), **graphs()}


class Subject:
    """A MODEL and how to sample it."""

    def __init__(self, make: Callable[[], Any], sample: Callable[..., Any]) -> None:
        self._make, self._sample, self._made = make, sample, None
        self._plain: dict[str, str] = {}

    @property
    def model(self) -> Any:
        """The MODEL without anything, made once."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def sample(self, model: Any, **options: Any) -> str:
        """Return the digest of what ``model`` samples."""
        return digest(self._sample(model, **options))

    def draw(self, chain: tuple[Step, ...], **options: Any) -> dict[str, Any]:
        """Return the digests with ``chain`` (nodes and inputs), without, and with the nodes taken off again."""
        plain = self._plain.get(str(options)) or self.sample(self.model, **options)
        self._plain[str(options)] = plain
        model = self.model
        for node, inputs in chain:
            model = run(node, model=model, **inputs)[0]
        image = self.sample(model, **options)
        removed = run("PacelineRemoveOptimizations", model=model)[0]
        return result(image, plain, self.sample(removed, **options), self.sample(self.model, **options))


def unet(make: Callable[[], Any], size: tuple[int, int] = (24, 16)) -> Subject:
    """Return a subject with a UNet, at a size in latent pixels."""

    def sample(model: Any, batch: int = 1, sides: tuple[int, int] = size, **options: Any) -> Any:
        positive, negative = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
        return in_process.sample(model, positive, negative, torch.zeros(batch, 4, *sides), seed=7, **options)

    return Subject(make, sample)


def transformer(name: str) -> Subject:
    """Return a subject with one of ``transformers.ALL``."""
    entry = transformers.ALL[name]

    def sample(model: Any, **options: Any) -> Any:
        texts = (transformers.conditioning(name, seed=seed) for seed in (1, 2))
        latent = transformers.latent(name, 24 * entry.patch, 16 * entry.patch)
        drawn = in_process.sample(model, *texts, latent, seed=7, scheduler="simple", **options)
        return torch.cat([stream.flatten() for stream in drawn.unbind()]) if entry.sound else drawn

    return Subject(partial(transformers.build, name), sample)


def with_lora() -> Any:
    """Return SD 1.5's layout with a patch on every query weight."""
    model = checkpoints.tiny_sd15(width=32, context=48).clone()
    generator = torch.Generator().manual_seed(5)
    weights = {key: value for key, value in model.model.state_dict().items() if key.endswith("to_q.weight")}
    patches = {key: ("diff", (torch.randn(value.shape, generator=generator) * 0.05,)) for key, value in weights.items()}
    model.add_patches(patches, 0.7)
    return model


def _of(title: str, subject: Subject, settings: dict[str, tuple[Step, ...]], **options: Any) -> Iterator[Any]:
    for name, steps in settings.items():
        yield f"comfyui {title}: {name}", partial(subject.draw, steps, **options)


def _attention() -> dict[str, tuple[Step, ...]]:
    backend = next(i for i in _nodes["PacelineSetAttentionProcessor"].GET_SCHEMA().inputs if i.id == "backend")
    return {f"attention {name}": (("PacelineSetAttentionProcessor", {"backend": name}),) for name in backend.options}


def cases() -> Iterator[tuple[str, Draw]]:
    """Yield name and drawing of every case."""
    in_process.bootstrap()
    import folder_paths

    folder_paths.set_user_directory(tempfile.mkdtemp(prefix="user_"))
    _nodes.update(pack.load_nodes())
    every = {**TOKEN_REDUCTION, **_attention(), **INT8, **PRECISION, "fuse": (("PacelineFuseQKV", {}),)}
    sd15 = unet(lambda: checkpoints.tiny_sd15(width=32, context=48))
    smallest = unet(checkpoints.smallest_unet)
    sdxl = unet(lambda: checkpoints.sdxl_layout(width=32, head_channels=32, context=64), (48, 32))
    yield from _of("sd15", sd15, every, steps=3)
    yield from _of("sd15 two images", sd15, TOKEN_REDUCTION, batch=2, sides=(18, 30))
    yield from _of("sd15 in 8 steps", sd15, KEPT, steps=8)
    yield from _of("small unet", smallest, {**COMPILE, **STACKS})
    yield from _of("sd15 with a LoRA", unet(with_lora), {**STACKS, **INT8})
    few = ("tokens preset", "tokens merge", "tokens kv", "attention sdpa", "int8 sp")
    chosen = {name: steps for name, steps in every.items() if name.startswith(few) or name == "fuse"}
    yield from _of("sdxl", sdxl, {**chosen, "stack": STACKS["stack without compile"]}, steps=1)
    for name in transformers.ALL:
        yield from _of(name, transformer(name), TRANSFORMERS)
    yield from _vae_cases()
    yield "comfyui controlnet: compile", partial(_controlled, smallest)


def _vae_cases() -> Iterator[tuple[str, Draw]]:
    from .comfyui_settings import VAE

    # Its maker, the latent's size, and how many images (frames) of 64 x 64 are encoded.
    makers: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
        "kl": (vaes.kl, (1, 4, 8, 12), 1),
        "taesd": (vaes.taesd, (1, 4, 8, 12), 1),
        "wan": (vaes.wan, (1, 16, 2, 8, 8), 5),
        "ltx": (vaes.ltx, (1, 128, 2, 4, 4), 9),
    }
    for name, (make, size, images) in makers.items():
        for title, steps in VAE.items():
            yield f"comfyui vae {name}: {title}", partial(_vae, make, size, images, steps)


def _vae(make: Callable[[], Any], size: tuple[int, ...], images: int, steps: tuple[Step, ...]) -> dict[str, Any]:
    vae, generator = make(), torch.Generator().manual_seed(3)
    latent = torch.randn(size, generator=generator)
    pixels = torch.rand(images, 64, 64, 3, generator=generator)

    def both(vae: Any) -> str:
        with torch.inference_mode():
            return digest(vae.decode(latent.clone()), vae.encode(pixels.clone()))

    plain, ours = both(vae), vae
    for node, inputs in steps:
        ours = run(node, vae=ours, **inputs)[0]
    image = both(ours)
    return result(image, plain, both(run("PacelineRemoveOptimizations", vae=ours)[1]), both(vae))


def _controlled(subject: Subject) -> dict[str, Any]:
    control_net = checkpoints.smallest_controlnet()
    positive, negative = (in_process.random_conditioning(subject.model, seed=seed) for seed in (1, 2))
    hint = torch.rand(1, 24 * 8, 16 * 8, 3, generator=torch.Generator().manual_seed(1))

    def sample(control_net: Any) -> str:
        apply = import_module("nodes").ControlNetApplyAdvanced().apply_controlnet
        texts = apply(positive, negative, control_net, hint, 1.0, 0.0, 1.0)
        return digest(in_process.sample(subject.model, *texts, torch.zeros(1, 4, 24, 16), seed=7, steps=2))

    plain = sample(control_net)
    ours = run("PacelineCompileControlNet", control_net=control_net, backend="eager")[0]
    image = sample(ours)
    return result(image, plain, sample(run("PacelineRemoveOptimizations", control_net=ours)[2]), sample(control_net))
