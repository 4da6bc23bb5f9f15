"""Token merging in diffusers' transformers: fewer image keys and values, where attention computes with them."""

from __future__ import annotations

import functools
from typing import cast

from torch import Tensor
from torch.nn import Module

from .....core.calls import Args, Kwargs
from .....core.errors import UnsupportedModel
from ....families import families, find_family
from ....families.family import TEXT_FIRST, TokenLayout
from ....token_merging.joint_policy import SAME_SIZE, Grid, JointMergingPolicy, Layout
from ....token_merging.policy import counted
from ....token_merging.residual import where_kept
from ..host import Host
from ..network_calls import tensor_given
from ..patches import Patches
from ..protocols import Model
from .denoiser import Forward, PipelineTokenMerging

_OTHER_TOKENS = "the number of tokens is not that of text and image (reference images, or tokens added by others)"


class PipelineJointTokenMerging(PipelineTokenMerging):
    """Apply ToMe on one transformer.

    On attaching, `UnsupportedModel` for other classes, and for settings that merge tokens.
    """

    policy: JointMergingPolicy
    _sides: tuple[Tensor, tuple[int, int]] | None = None

    def attach(self, host: Host, patches: Patches) -> None:
        component = host.component
        self._tokens, layers = _tokens_of(component.part), _attention_layers(component.part)
        self.policy = JointMergingPolicy(component.class_name, self.settings, "attention layers", len(layers))
        self._kept: dict[tuple[int, bool], Tensor] = {}
        self._text = 0
        for name, layer in layers:
            patches.wrap(layer, "forward", functools.partial(self._fewer_keys, name))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        super().before(host, args, kwargs)
        self._kept = {}
        if not self.active:
            return
        hidden = tensor_given(args, kwargs, "hidden_states", 0)
        text = tensor_given(args, kwargs, "encoder_hidden_states", 1)
        grid = Grid(1, *self._grid(host.component.part, hidden, kwargs))
        self._text = text.shape[1]
        found = hidden.shape[1] if hidden.dim() == 3 else grid.tokens
        if found != grid.tokens or grid.tokens == self._text:
            self.activity.fall_back(SAME_SIZE if found == grid.tokens else _OTHER_TOKENS)
            self.active = False
            return
        before = self._text if self._tokens.in_diffusers == TEXT_FIRST else 0
        joint = Layout(before, grid, (), self._text - before)
        for residual in (None,) if self.residual is None else (None, self.residual):
            method = self.policy.method_for("all", joint.tokens, hidden.device, self.activity, residual)
            if method is None:
                self.active = False
                return
            with_residual = residual is not None
            for layout in (joint, Layout(0, grid)):
                kept = self.policy.prepare(method, layout, hidden.device, with_residual)
                self._kept[(layout.tokens, with_residual)] = kept

    def _grid(self, model: Module, hidden: Tensor, kwargs: Kwargs) -> tuple[int, int]:
        if not self._tokens.places:  # a latent: [batch, channels, height, width]
            patch = cast(Model, model).config.patch_size
            return hidden.shape[-2] // patch, hidden.shape[-1] // patch
        places = kwargs.get(self._tokens.places)  # [tokens, 3], row and column of each token
        if not isinstance(places, Tensor):
            return 0, 0
        if self._sides is None or self._sides[0] is not places:
            ids = places if places.dim() == 2 else places[0]
            # Read once for each run: this waits for the device.
            sides = (ids[:, 1:].amax(0) + 1).tolist()
            self._sides = (places, (int(sides[0]), int(sides[1])))
        return self._sides[1]

    def _fewer_keys(self, name: str, forward: Forward) -> Forward:
        def kept_of(q: Tensor, k: Tensor) -> Tensor | None:
            tokens = k.shape[2]
            residual = where_kept(self.residual, name, tokens, k.device)
            kept = self._kept.get((tokens, residual is not None))
            if kept is None or q.shape[2] != tokens:
                if tokens != self._text:
                    self.activity.fall_back(_OTHER_TOKENS)
                return None
            return counted(name, tokens, kept, self.activity, self.policy.all_stay(residual is not None))

        return self.with_fewer_keys(name, forward, kept_of)


def _attention_layers(model: Module) -> list[tuple[str, Module]]:
    return [(name, part) for name, part in model.named_modules() if hasattr(part, "get_processor")]


def _tokens_of(model: Module) -> TokenLayout:
    family = find_family(model)
    if family is not None and family.tokens is not None:
        return family.tokens
    paths = (path for one in families() if one.tokens is not None for path in one.networks)
    served = ", ".join(path.removeprefix("diffusers.") for path in paths if path.startswith("diffusers."))
    raise UnsupportedModel(
        f"Apply ToMe cannot reduce tokens in a {type(model).__name__}.",
        f"Leave TokenMerging out. It works with UNet2DConditionModel and with {served}.",
    )
