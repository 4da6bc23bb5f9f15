"""The parts of a diffusers pipeline that can be optimized, what each is called from outside, and who asked for what.

Pipelines share parts (``from_pipe``, a base model and its refiner); each may ask for something and give it back.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..core import weights
from ..core.errors import InvalidSetting, UnsupportedModel
from ..models.families import FAMILIES

DENOISER, CONTROLNET, VAE, TEXT = "denoiser", "controlnet", "vae", "text encoder"

_TEXT_ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3", "image_encoder")


@dataclass(frozen=True)
class Component:
    """One part of a pipeline: the module, by the pipeline's name for it, and what it does."""

    name: str
    role: str
    part: Any

    @property
    def entry(self) -> str:
        """The method through which a pipeline runs it."""
        return "decode" if self.role == VAE else "forward"

    @property
    def class_name(self) -> str:
        return type(self.part).__name__


@dataclass(frozen=True)
class Claim:
    """What somebody has asked for on a component.

    Attributes:
        technique: its class; ``settings``: what it is made from.
        owner: the pipeline that was given to ``optimize``; None for the component itself.
        optional: whether it is left out where it cannot help; else that is an error.
    """

    technique: type[Any]
    settings: Any
    owner: weakref.ref[Any] | None
    optional: bool

    @property
    def pipeline(self) -> Any:
        """The pipeline that has asked; None if it is gone, or none did."""
        return None if self.owner is None else self.owner()


_asked: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
"""The parts on which each pipeline has asked for something, also those that it has no more. It keeps none in memory."""


def remember(pipeline: Any, part: Any) -> None:
    """Note that a pipeline asks for something on a part."""
    if pipeline is not None:
        _asked.setdefault(pipeline, weakref.WeakSet()).add(part)


def asked_on(pipeline: Any) -> tuple[Any, ...]:
    """Return the parts on which a pipeline has asked for something."""
    return tuple(_asked.get(pipeline, ()))


def components_of(target: object) -> tuple[Component, ...]:
    """Return the parts of a pipeline, or the one that a model on its own is; `UnsupportedModel` for all else."""
    found = tuple(_parts(target))
    if not any(part.role in (DENOISER, CONTROLNET, VAE) for part in found):
        raise UnsupportedModel(
            f"{type(target).__name__} has no part that can be optimized.",
            "Give a diffusers pipeline with a unet, transformer, controlnet or vae, or one of these models itself.",
        )
    return found


def require_plain_weights(title: str, component: Component) -> None:
    """Raise `UnsupportedModel` if ``title`` would read weights that another quantiser or loader has made."""
    remedy = f"Load the model in floating point (from_pretrained without a quantization_config), or leave {title} out."
    weights.refuse_packed_weights(title, component.part, component.class_name, remedy)


def device_of(part: torch.nn.Module) -> torch.device:
    """Return where a model computes: also where accelerate brings its weights there for each call only."""
    hooks = (getattr(module, "_hf_hook", None) for module in part.modules())
    found = (getattr(hook, "execution_device", None) for hook in hooks)
    brought = next((torch.device(place) for place in found if place is not None), None)
    return next(part.parameters()).device if brought is None else brought


def choose(components: tuple[Component, ...], names: Iterable[str] | None) -> tuple[Component, ...]:
    """Return the components called ``names``; all of them if None; `InvalidSetting` for an unknown name, or none."""
    if names is None:
        return components
    wanted = (names,) if isinstance(names, str) else tuple(names)
    if not wanted:
        raise InvalidSetting("components names nothing.", "Leave it out for all parts of the pipeline.")
    known = {component.name.split(".")[0] for component in components} | {part.name for part in components}
    for name in wanted:
        if name not in known:
            raise InvalidSetting(f"components names {name!r}.", f"This pipeline has: {', '.join(sorted(known))}.")
    return tuple(part for part in components if part.name in wanted or part.name.split(".")[0] in wanted)


def _parts(target: object) -> Iterator[Component]:
    if isinstance(target, torch.nn.Module):
        yield from _from_module("model", target)
        return
    named = getattr(target, "components", None)
    if not isinstance(named, dict):
        return
    for name, part in named.items():
        if isinstance(part, torch.nn.Module):
            yield from _from_module(name, part)


def _from_module(name: str, module: torch.nn.Module) -> Iterator[Component]:
    kind = type(module).__name__
    nets = getattr(module, "nets", None)
    if isinstance(nets, torch.nn.ModuleList):  # several ControlNets as one
        for number, net in enumerate(nets):
            yield Component(f"{name}.{number}", CONTROLNET, net)
    elif "ControlNet" in kind:
        yield Component(name, CONTROLNET, module)
    elif hasattr(module, "decode") and hasattr(module, "encode"):
        yield Component(name, VAE, module)
    elif name in _TEXT_ENCODERS:
        yield Component(name, TEXT, module)
    elif name == "model" or any(name in family.parts for family in FAMILIES):
        yield Component(name, DENOISER, module)
