"""Attach techniques to a copy of a CONTROL_NET, and take them off again.

Nodes call ``copy()`` for each use, which makes a new object of ComfyUI's own class. Our copy has a class derived from
that one, whose ``copy`` passes the techniques on, and whose ``get_control`` lets them in (see ``method_proxy``).
Everything is kept per object: ControlNets of one file, even in one chain, do not meet.
"""

from __future__ import annotations

from typing import cast

from torch.nn import Module

from ...core.errors import UnsupportedModel, WrongObject, kind_of
from ..run.comfy_technique import AnyTechnique
from ..run.stack import Stack
from ..structure.protocols import ControlNet, NetworkPatcher
from .method_proxy import HOME, STACK, NetworkCall, NetworkTarget, class_with, count, install, plain_class, stack_on


class ControlNetTarget(NetworkTarget[ControlNet]):
    """A CONTROL_NET that techniques are attached to."""

    def with_techniques(self, techniques: tuple[AnyTechnique, ...]) -> ControlNet:
        copy = _copy_with(self.thing, Stack(techniques))
        home = getattr(self.thing, HOME, None)
        if not techniques and home is not None:
            copy.control_model_wrapped, copy.control_model = home, home.model
        return copy


class _ControlNetWithTechniques:
    control_model: Module
    control_model_wrapped: NetworkPatcher

    def get_control(self, *args: object, **kwargs: object) -> object:
        # The copy keeps its hint from step to step, so the call must be its own and not that of another copy.
        network, stack = self.control_model, stack_on(self)
        call = NetworkCall(network, self.control_model_wrapped, ("__call__",))
        try:
            with call.cleanup:
                self.control_model = install(stack, call)
                result = super().get_control(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.control_model = network
            call.forget()
        count(stack, call)
        return result

    def pre_run(self, *args: object, **kwargs: object) -> object:
        # All copies of a run begin before the first of them computes, and end after the last: any of them may say so.
        stack = stack_on(self)
        stack.begin(stack)
        return super().pre_run(*args, **kwargs)  # type: ignore[misc]

    def cleanup(self) -> None:
        super().cleanup()  # type: ignore[misc]
        stack = stack_on(self)
        stack.finish(stack)

    def copy(self) -> ControlNet:
        return _copy_with(cast(ControlNet, self), stack_on(self))


def require_controlnet(control_net: object) -> None:
    """Raise `WrongObject` unless it is ComfyUI's own, `UnsupportedModel` for a kind that gains nothing from us."""
    from comfy.controlnet import ControlLora, ControlNet, T2IAdapter

    name = type(control_net).__name__
    if isinstance(control_net, T2IAdapter):
        raise UnsupportedModel(
            f"This CONTROL_NET is a {name}, whose network runs once for an image and not at every step.",
            "There is nothing to gain; remove the node.",
        )
    if isinstance(control_net, ControlLora):
        raise UnsupportedModel(
            f"This CONTROL_NET is a {name}, which builds its network anew from the model at each sampling run.",
            "Use a full ControlNet in its place, or remove the node.",
        )
    if name == "QwenFunControlNet":
        raise UnsupportedModel(
            f"This CONTROL_NET is a {name}, which runs layers of the diffusion model inside of its own.",
            "Remove the node for this ControlNet; Compile UNet works beside it.",
        )
    if not isinstance(control_net, ControlNet) or getattr(control_net, "control_model", None) is None:
        raise WrongObject(
            f"This CONTROL_NET is {kind_of(control_net)}, not one of ComfyUI's own.",
            "Load it with ComfyUI's Load ControlNet Model.",
        )


def _copy_with(control_net: ControlNet, stack: Stack) -> ControlNet:
    plain = cast(type[ControlNet], plain_class(control_net, _ControlNetWithTechniques))
    copy = plain.copy(control_net)
    if stack.techniques:
        setattr(copy, STACK, stack)
        if hasattr(control_net, HOME):
            setattr(copy, HOME, getattr(control_net, HOME))
        copy.__class__ = class_with(_ControlNetWithTechniques, type(copy))
    return copy


def moved_control_net(control_net: ControlNet, patcher: NetworkPatcher) -> ControlNet:
    """Return a copy of a CONTROL_NET that runs on the network of ``patcher``, until everything of ours is taken off."""
    moved = _copy_with(control_net, stack_on(control_net))
    setattr(moved, HOME, getattr(control_net, HOME, control_net.control_model_wrapped))
    moved.control_model_wrapped, moved.control_model = patcher, patcher.model
    return moved
