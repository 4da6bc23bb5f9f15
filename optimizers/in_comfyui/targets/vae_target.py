"""Attach techniques to a copy of a VAE, and take them off again.

ComfyUI's own nodes use ``copy.copy``, which keeps class and attributes. Our copy gets a class of its own, whose
decoding and encoding let the techniques in (see ``method_proxy``), and the immutable :class:`Stack` as an attribute:
both survive copies made by other nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from torch.nn import Module

from ...core.errors import WrongObject, kind_of
from ..run.comfy_technique import AnyTechnique
from ..run.stack import Stack
from ..structure.protocols import VAE, NetworkPatcher
from .method_proxy import HOME, STACK, NetworkCall, NetworkTarget, class_with, count, install, plain_class, stack_on

_T = TypeVar("_T")
_METHODS = ("decode", "encode", "decode_tiled", "encode_tiled")


class VAETarget(NetworkTarget["VAE"]):
    """A VAE that techniques are attached to."""

    def with_techniques(self, techniques: tuple[AnyTechnique, ...]) -> VAE:
        bare = _bare_copy(self.thing)
        if not techniques:
            return at_home(bare)
        setattr(bare, STACK, Stack(techniques))
        bare.__class__ = class_with(_VAEWithTechniques, type(bare))
        return bare


def _run_with_techniques(name: str) -> Callable[..., object]:
    def run(self: _VAEWithTechniques, *args: object, **kwargs: object) -> object:
        stack = stack_on(self)
        call = NetworkCall(self.first_stage_model, self.patcher, _METHODS)
        plain = _bare_copy(self)
        stack.begin(call)
        try:
            with call.cleanup:
                plain.first_stage_model = install(stack, call)
                return getattr(plain, name)(*args, **kwargs)
        finally:
            call.forget()
            count(stack, call)
            stack.finish(call)

    return run


class _VAEWithTechniques:
    """Comes before ComfyUI's VAE in the class of a copy that carries techniques.

    A short-lived copy with the plain class, which sees the proxy as its network, runs each call: even two threads that
    use one VAE at once do not meet.
    """

    first_stage_model: Module
    patcher: NetworkPatcher

    decode, encode, decode_tiled, encode_tiled = map(_run_with_techniques, _METHODS)


def _bare_copy(vae: _T) -> _T:
    bare = copy.copy(vae)
    if isinstance(bare, _VAEWithTechniques):
        bare.__class__ = plain_class(bare, _VAEWithTechniques)
        del bare.__dict__[STACK]
    return bare


def require_vae(vae: object) -> None:
    """Raise `WrongObject` unless it is ComfyUI's own VAE object, with a network inside."""
    from comfy.sd import VAE

    if not isinstance(vae, VAE):
        raise WrongObject(
            f"This VAE is {kind_of(vae)}, not ComfyUI's own VAE object.", "Load it with Load VAE or Load Checkpoint."
        )
    if vae.first_stage_model is None:
        raise WrongObject(
            "This VAE is empty: the checkpoint it was loaded from has no VAE inside.", "Load one with Load VAE."
        )


def describe_vae(vae: VAE) -> str:
    """Return the VAE's name for messages, e.g. ``VAE (AutoencoderKL)``."""
    return f"VAE ({type(vae.first_stage_model).__name__})"


def moved_vae(vae: VAE, patcher: NetworkPatcher, **changes: object) -> VAE:
    """Return a copy of a VAE that runs on the network of ``patcher``, until everything of ours is taken off.

    ``changes``: attributes that the copy has otherwise than ``vae``, undone with the rest.
    """
    moved = copy.copy(vae)
    home, _, before = getattr(vae, HOME, (vae.patcher, None, {}))
    setattr(moved, HOME, (home, patcher.model, {**{name: getattr(vae, name) for name in changes}, **before}))
    moved.patcher, moved.first_stage_model = patcher, patcher.model
    moved.__dict__.update(changes)
    return moved


def at_home(vae: VAE) -> VAE:
    """Return a copy of a VAE on the network that its loader gave it; techniques stay attached."""
    result = copy.copy(vae)
    home, network, before = result.__dict__.pop(HOME, (None, None, {}))
    if home is not None and result.first_stage_model is network:  # else another node has moved it since
        result.patcher, result.first_stage_model = home, home.model
        result.__dict__.update(before)
    return result
