"""Changes of the modules of a pipeline, which accelerate may have wrapped to move their weights, and their undo."""

from __future__ import annotations

from functools import partial

import torch

from ....core.calls import Function
from ....core.memory_format import channels_last
from ....core.shadow import Shadows

_OFFLOADED = "_old_forward"
"""Where accelerate keeps a module's forward while its own, which moves weights, stands in its place."""


class Patches(Shadows):
    """What was put on the objects of one component."""

    def shadow(self, owner: object, name: str, function: Function) -> None:
        """Let ``owner.name`` be ``function``; inside of a ``forward`` that accelerate has put on a module.

        Ours is then given tensors on the right device, and stays where it is when offloading is switched off.
        """
        slot = _OFFLOADED if name == "forward" and _OFFLOADED in owner.__dict__ else name
        previous = owner.__dict__.get(slot)
        owner.__dict__[slot] = function
        self.on_undo(lambda: _take_out(owner, name, function, previous))


def current(owner: object, name: str) -> Function:
    """Return the callable that :meth:`Patches.shadow` would replace now."""
    if name == "forward" and _OFFLOADED in owner.__dict__:
        return owner.__dict__[_OFFLOADED]  # type: ignore[no-any-return]
    return getattr(owner, name)  # type: ignore[no-any-return]


def _take_out(owner: object, name: str, function: Function, previous: Function | None) -> None:
    for slot in (name, _OFFLOADED):
        if owner.__dict__.get(slot) is function:
            if previous is not None:
                owner.__dict__[slot] = previous
            elif slot == _OFFLOADED:
                owner.__dict__[slot] = getattr(type(owner), name).__get__(owner)
            else:
                del owner.__dict__[slot]
            return
    # Somebody has wrapped ours and still calls it. It is told by its host being detached, and steps aside.


def to_channels_last(part: torch.nn.Module, patches: Patches) -> None:
    """Lay out the weights of convolutions with their channels last; images follow the weights."""
    for parameter in part.parameters():
        laid_out = channels_last(parameter.data)
        if laid_out is not parameter.data and laid_out.stride() != parameter.data.stride():
            patches.on_undo(partial(_restride, parameter, parameter.data.stride()))
            parameter.data = laid_out


def _restride(parameter: torch.Tensor, strides: tuple[int, ...]) -> None:
    data = torch.empty_strided(parameter.shape, strides, dtype=parameter.dtype, device=parameter.device)
    parameter.data = data.copy_(parameter.data)
