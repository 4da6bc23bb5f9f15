"""Further events of random lives: wrappers, adapters and masks, parts that are replaced, loops of the user's own."""

from __future__ import annotations

import copy
import random
from functools import partial
from types import MethodType
from typing import Any

import torch
import torch.nn.utils.prune
from diffusers.hooks import HookRegistry, ModelHook
from life_events import EXACT, Events, Wrong, claims_on
from paceline import Compile, QuantizeInt8
from peft import LoraConfig
from random_pipelines import distance, own_loop


def wrap(life: Events, chance: random.Random) -> None:
    """Others put something around a part's ``forward``, or take off what they have put there last."""
    if life.wrapped and chance.random() < 0.4:
        life.say("the last wrapper is taken off")
        life.wrapped.pop()()
        return
    pair, way = chance.choice(life.pairs), chance.choice(("function", "hook", "compile"))
    name = chance.choice([one for one in life.parts(pair) if one != "vae"])
    parts = [getattr(one.pipe, name) for one in (pair.twin, pair.ours)]
    if way == "hook" and any(getattr(one, "_diffusers_hook", None) is not None for one in parts):
        return
    life.say(f"wrapped by a {way}: {name} of {life.pairs.index(pair)}")
    undo = [_wrapped(part, way) for part in parts]
    life.wrapped.append(lambda: [one() for one in undo] and None)


def _wrapped(part: Any, way: str) -> Any:
    below = part.forward
    if way == "hook":
        registry = HookRegistry.check_if_exists_or_initialize(part)
        registry.register_hook(ModelHook(), "own")
        return lambda: (registry.remove_hook("own", recurse=False), delattr(part, "_diffusers_hook"))
    if way == "compile":
        part.forward = torch.compile(below, backend="eager")
    else:
        part.forward = MethodType(lambda self, *args, **kwargs: below(*args, **kwargs), part)
    own = below if getattr(below, "__func__", None) is not type(part).forward else None
    return lambda: setattr(part, "forward", below) if own is not None else delattr(part, "forward")


def layers(life: Events, chance: random.Random) -> None:
    """Others compute attention layers of a part themselves, or do so no more."""
    pair = chance.choice(life.pairs)
    name = chance.choice(life.parts(pair))
    every = chance.random() < 0.5
    life.say(f"{'every attention layer' if every else 'one attention layer'} computed by others: {name}")
    for part in (getattr(pair.twin.pipe, name), getattr(pair.ours.pipe, name)):
        found = [one for one in part.modules() if hasattr(one, "get_processor")]
        for layer in found if every else found[:1]:
            if layer.__dict__.pop("forward", None) is None:
                layer.forward = partial(_theirs, layer)


def _theirs(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return type(self).forward(self, hidden_states * 0.9, *args, **kwargs)


def replace(life: Events, chance: random.Random) -> None:
    """A pipeline gets another part, or the first one back."""
    if life.taken:
        pair, name, ours, twin = life.taken.pop()
        if pair in life.pairs:
            life.say(f"the first part is put back: {name} of {life.pairs.index(pair)}")
            pair.ours.pipe.register_modules(**{name: ours})
            pair.twin.pipe.register_modules(**{name: twin})
        return
    pair = chance.choice(life.pairs)
    name = chance.choice([one for one in life.parts(pair) if one != "controlnet"])
    if life.wrapped or len({one.dtype for one in pair.ours.pipe.components.values() if hasattr(one, "dtype")}) > 1:
        return
    twin = getattr(pair.twin.pipe, name)
    if getattr(pair.ours.pipe, name).dtype != twin.dtype:  # diffusers refuses parts of two dtypes
        return
    life.say(f"another part: {name} of {life.pairs.index(pair)}")
    life.taken.append((pair, name, getattr(pair.ours.pipe, name), twin))
    other = copy.deepcopy(twin)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.9)
    pair.ours.pipe.register_modules(**{name: copy.deepcopy(other)})
    pair.twin.pipe.register_modules(**{name: other})


def adapt(life: Events, chance: random.Random) -> None:
    """A denoiser gets a LoRA, or has it no more."""
    pair = chance.choice(life.pairs)
    name = next(one for one in life.parts(pair) if one in ("unet", "transformer"))
    parts = [getattr(one.pipe, name) for one in (pair.twin, pair.ours)]
    added = [bool(getattr(part, "peft_config", {})) for part in parts]
    if life.wrapped or added[0] != added[1]:  # a wrapper of another would be in the LoRA's way
        return
    life.say(f"a LoRA is {'taken off' if added[0] else 'added'}: {name} of {life.pairs.index(pair)}")
    for part in parts:
        if added[0]:
            part.delete_adapters("own")
            part.peft_config = {}
        else:
            torch.manual_seed(life.seed)
            part.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False), "own")


def prune(life: Events, chance: random.Random) -> None:
    """Half of a layer's weights are masked in each call, or for good."""
    pair = chance.choice(life.pairs)
    name = chance.choice(life.parts(pair))
    if life.has(QuantizeInt8):  # nobody can mask torchao's weights
        return
    life.say(f"weights masked: {name} of {life.pairs.index(pair)}")

    def change(pipe: Any) -> None:
        layer = next(one for one in getattr(pipe, name).modules() if type(one) is torch.nn.Linear)
        with torch.no_grad():
            if torch.nn.utils.prune.is_pruned(layer):
                torch.nn.utils.prune.remove(layer, "weight")
            else:
                mask = torch.arange(layer.weight.numel()).reshape(layer.weight.shape) % 2
                torch.nn.utils.prune.custom_from_mask(layer, "weight", mask.to(layer.weight))

    pair.both(change)


def loop(life: Events, chance: random.Random) -> None:
    """The user's own denoising loop with the pipeline's UNet: it draws the same each time."""
    pair = chance.choice(life.pairs)
    if life.name not in ("sd15", "sd15-img2img"):
        return
    life.say(f"own denoising loop: {life.pairs.index(pair)}")
    plain, first, second = (own_loop(one.pipe) for one in (pair.twin, pair.ours, pair.ours))
    if not torch.equal(first, second):
        raise Wrong(f"the same loop draws two pictures: {distance(second, first):.2g}")
    exact = (*map(type, EXACT), Compile)
    kinds = [one.settings for (part, _), one in claims_on(pair.ours.pipe).items() if part == "unet"]
    few_bits = any("Precision" in one or "Int8" in one for one in life.events)
    if all(isinstance(one, exact) for one in kinds) and distance(first, plain) > (0.1 if few_bits else 1e-4):
        raise Wrong(f"a loop of one's own: {distance(first, plain):.2g} from its plain twin")


MORE = (wrap, wrap, wrap, layers, layers, replace, replace, loop, adapt, adapt, prune, prune)
