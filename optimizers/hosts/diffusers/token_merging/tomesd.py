"""Token merging by the package tomesd, to compare ours with."""

from __future__ import annotations

from dataclasses import fields, replace
from types import ModuleType

from torch.nn import Module

from .....core.calls import Args, Kwargs
from .....core.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from .....core.technique import COMPILATION
from ....token_merging import TokenMergingSettings
from ....token_merging.policy import TokenMergingPolicy, no_unet
from ..host import Host
from ..patches import Patches
from ..unet import ModuleBlock, image_attention, is_unet
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
        tomesd.apply_patch(unet, **options)
        patches.on_undo(lambda: _remove(tomesd, unet))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        """Count the blocks in which tomesd merges: it patches all, and leaves coarser levels as they are."""
        for block in self.policy.blocks:
            if type(block.module).__name__ == "ToMeBlock":
                self.activity.use(block.name)


def _remove(tomesd: ModuleType, unet: Module) -> None:
    tomesd.remove_patch(unet)
    for part in unet.modules():  # left behind by tomesd
        part.__dict__.pop("_tome_info", None)


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
