"""VAE Precision: a VAE whose network computes in another dtype, beside the one that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .....core.activity import Activity, Summary
from .....core.memory_format import channels_last
from .....core.order import PRECISION
from ....precision import PrecisionSettings, arithmetic
from ....precision.settings import dtype_name
from ..method_proxy import NetworkCall, NetworkTechnique
from ..vae import at_home, describe_vae, moved_to, require_vae
from ..weight_clone import second_module
from .choice import choose_dtype, needs_other_weights
from .weights import convert_weight


class VAEPrecision(NetworkTechnique):
    """What VAE Precision does in each call; the weights are another network's (see ``with_precision``).

    Args:
        settings: what was asked for.
        before: what the VAE computed in.
        dtype: what it computes in now.
        node_id: the node to report to.
    """

    kind = PRECISION
    title = "VAE Precision"

    def __init__(
        self, settings: PrecisionSettings, before: torch.dtype, dtype: torch.dtype, node_id: str | None = None
    ) -> None:
        super().__init__(node_id)
        self.settings, self.before, self.dtype = settings, before, dtype

    def describe(self) -> str:
        """Return e.g. ``computes in bf16 instead of fp32; channels last``."""
        text = f"computes in {dtype_name(self.dtype)}"
        if self.dtype != self.before:
            text += f" instead of {dtype_name(self.before)}"
        return "; ".join((text, *self.settings.extras()))

    def install(self, call: Any, activity: Activity) -> None:
        """Switch arithmetic on, and hand over images in the order of the weights."""
        network: NetworkCall = call
        activity.use("call")
        network.cleanup.enter_context(arithmetic(self.settings))
        if self.settings.channels_last:
            for method in tuple(network.methods):
                network.wrap(method, _with_channels_last)

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active: computes in bf16 instead of fp32``."""
        return Summary("active", f"active: {self.describe()}")


def _with_channels_last(inner: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    return inner(channels_last(x), *args, **kwargs)


def with_precision(vae: Any, settings: PrecisionSettings, node_id: str | None = None) -> tuple[Any, VAEPrecision]:
    """Return a copy of a VAE with weights as ``settings`` ask for, and the technique to attach to it.

    Args:
        vae: a VAE; with techniques or without.
        settings: of the node.
        node_id: the node to report to.

    Raises:
        InvalidSetting: if this VAE does not work in the chosen dtype.
        UnsupportedModel: if the settings change nothing, or this is no VAE of ComfyUI.
        BackendUnavailable: if its device has no such arithmetic.
    """
    require_vae(vae)
    home = at_home(vae)
    device, before = torch.device(home.device), home.vae_dtype
    supported, what = tuple(home.working_dtypes), describe_vae(vae)
    dtype = choose_dtype(settings, what, device, before, supported)
    other_weights = needs_other_weights(settings, what, device, before, dtype, supported)
    technique = VAEPrecision(settings, before, dtype, node_id)
    if other_weights:
        home = moved_to(home, _second_patcher(home.patcher, before, dtype, settings.channels_last), vae_dtype=dtype)
    return home, technique


def _second_patcher(patcher: Any, before: torch.dtype, dtype: torch.dtype, order: bool) -> Any:
    """Return a patcher of the same class on a second network; the first keeps its weights."""
    network = _second_network(patcher.model, before, dtype, order)
    second = patcher.clone(model_override=(network, ({}, {}, {}, set())))
    second.size, second.parent = 0, None
    # ComfyUI asks for an independent copy when it leaves dynamic VRAM.
    second.cached_patcher_init = (_load_again, (patcher, before, dtype, order))
    return second


def _load_again(
    patcher: Any, before: torch.dtype, dtype: torch.dtype, order: bool, disable_dynamic: bool = False
) -> Any:
    import comfy.model_patcher as patchers

    patcher_class = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
    network = _second_network(patcher.model, before, dtype, order)
    return patcher_class(network, load_device=patcher.load_device, offload_device=patcher.offload_device)


def _second_network(network: Any, before: torch.dtype, dtype: torch.dtype, order: bool) -> Any:
    return second_module(
        network, lambda name, module: None, lambda name, tensor: convert_weight(tensor, before, dtype, order)
    )
