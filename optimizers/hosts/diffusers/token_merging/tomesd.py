"""Token merging by the package tomesd, to compare ours with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from types import ModuleType
from typing import Any

from torch.nn import Module

from .....core.calls import Args, Kwargs
from .....core.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from .....core.technique import COMPILATION
from ....token_merging import TokenMergingSettings
from ....token_merging.policy import TokenMergingPolicy, no_unet
from ..host import Host
from ..patches import Patches
from .blocks import ModuleBlock, image_attention, is_unet
from .denoiser import PipelineTokenMerging

_TAKES = ("ratio", "max_downsample", "sx", "sy", "use_rand", "merge_attn", "merge_crossattn", "merge_mlp")


class TomesdPolicy(TokenMergingPolicy[ModuleBlock]):
    """Apply ToMe by tomesd, which keeps no difference."""

    keeps = False

    def clauses(self) -> tuple[str, ...]:
        settings = replace(self.settings, residual="off")
        return f"tomesd {settings.describe()}", "breaks the graph of torch.compile at every patched block"


class TomesdMerging(PipelineTokenMerging):
    """``tomesd.apply_patch`` on one UNet, undone by ``tomesd.remove_patch``.

    Known from running 0.1.3: each patched block breaks the graph of torch.compile (17 graphs for 4 blocks), images
    whose sides are not multiples of 8 latents can fail, and its random choice depends on the calls before. Raises
    `UnsupportedModel` for anything but a UNet, `InvalidSetting` for settings that tomesd does not have.
    """

    def attach(self, host: Host, patches: Patches) -> None:
        """Raise `BackendUnavailable` if tomesd is missing, `UnsupportedModel` if the UNet is compiled as one graph."""
        component, settings = host.component, self.settings
        if not is_unet(component.part):
            raise no_unet(component.class_name, "ReuseSteps, Attention and Compile")
        _refuse_what_it_lacks(settings)
        self.policy = TomesdPolicy(component.class_name, image_attention(component.part), settings)
        try:
            import tomesd
        except ImportError as error:
            raise BackendUnavailable(
                "TokenMerging: implementation is tomesd, which is not installed.", "pip install --no-deps tomesd"
            ) from error
        compile_settings = getattr(host.find(COMPILATION), "settings", None)
        if getattr(compile_settings, "fullgraph", False):
            raise UnsupportedModel(
                "TokenMerging: implementation is tomesd, which cannot be traced as one graph, and Compile asks for "
                "fullgraph.",
                "Set fullgraph to False, or use our implementation.",
            )
        unet, options = component.part, {name: getattr(settings, name) for name in _TAKES}
        options["max_downsample"] = max(block.downsample for block in self.policy.blocks)
        self._patched = _patched(tomesd, unet, options)

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        assert host.call is not None, "a UNet is called with a latent"
        sample = host.call.sample
        self._patched[0][2]["size"] = (sample.shape[2], sample.shape[3])  # what its hook on the UNet would do

    @contextmanager
    def around(self) -> Iterator[None]:
        """Put tomesd's classes on the blocks, and count those that run: it patches all, and merges in these."""
        before = [type(module) for module, _, _ in self._patched]
        counting = [
            block.module.register_forward_hook(partial(self._count, block.name)) for block in self.policy.blocks
        ]
        for module, kind, info in self._patched:
            module.__class__, module.__dict__["_tome_info"] = kind, info
        try:
            yield
        finally:
            for hook in counting:
                hook.remove()
            for (module, _, _), kind in zip(self._patched, before, strict=True):
                module.__class__ = kind
                del module.__dict__["_tome_info"]

    def _count(self, place: str, *_: object) -> None:
        self.activity.use(place)


def _patched(tomesd: ModuleType, unet: Module, options: dict[str, Any]) -> list[tuple[Module, type, dict[str, Any]]]:
    """Return what tomesd changes in a UNet, which is as before: each module, its class, and what it is told."""
    tomesd.apply_patch(unet, **options)
    found = [module for module in unet.modules() if "_tome_info" in module.__dict__]
    changed = [(module, type(module), module.__dict__["_tome_info"]) for module in found]
    tomesd.remove_patch(unet)
    for module in unet.modules():  # left behind by tomesd
        module.__dict__.pop("_tome_info", None)
    return changed


def _refuse_what_it_lacks(settings: TokenMergingSettings) -> None:
    for field in fields(settings):
        value = getattr(settings, field.name)
        allowed = field.name in _TAKES or value == field.default or (field.name == "method" and value == "merge")
        if field.name in ("implementation", "seed"):
            continue
        if not allowed:
            raise InvalidSetting(
                f"TokenMerging: implementation is tomesd, which has no {field.name} (it is {value!r}).",
                f"It takes {', '.join(_TAKES)}.",
            )
