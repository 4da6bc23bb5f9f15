"""VAE Precision: a VAE in another dtype, beside the one that is there."""

from __future__ import annotations

import torch
from torch.nn import Module

from ...core.activity import Activity
from ...core.memory_format import first_channels_last
from ...precision.precision_policy import PrecisionPolicy, choose_dtype
from ...precision.precision_settings import PrecisionSettings, arithmetic
from ..second_weights.clone import require_plain_weights, second_module, stage_in, without_dynamic_vram
from ..structure.protocols import VAE, NetworkPatcher
from ..targets.method_proxy import NetworkCall, NetworkTechnique
from ..targets.vae_target import at_home, describe_vae, moved_vae, require_vae


class VAEPrecision(NetworkTechnique):
    """The part of VAE Precision in each call; the weights are another network's (see ``with_precision``)."""

    policy: PrecisionPolicy

    def install(self, call: NetworkCall, activity: Activity) -> None:
        activity.use("call")
        call.cleanup.enter_context(arithmetic(self.policy.settings))
        if self.policy.settings.channels_last:
            for method in tuple(call.methods):
                call.wrap(method, first_channels_last)


def with_precision(vae: VAE, settings: PrecisionSettings) -> tuple[VAE, VAEPrecision]:
    """Return a copy of a VAE with weights as ``settings`` ask for, and the technique to attach to it.

    Raises `InvalidSetting` if it does not work in the chosen dtype, `UnsupportedModel` if nothing changes or it is no
    VAE of ComfyUI, `BackendUnavailable` if its device has no such arithmetic.
    """
    require_vae(vae)
    home: VAE = at_home(vae)
    require_plain_weights("VAE Precision", home.patcher.model, describe_vae(vae))
    device, before = torch.device(home.device), home.vae_dtype
    supported, what = tuple(home.working_dtypes), describe_vae(vae)
    dtype = choose_dtype(settings, what, device, before, supported)
    streamed = vae.patcher.is_dynamic()
    policy = PrecisionPolicy("VAE Precision", settings, before, dtype, before, dtype, streamed=streamed)
    policy.require_change(what, device, supported)
    if policy.changes_weights:
        home = moved_vae(home, _second_patcher(home.patcher, policy), vae_dtype=dtype)
    if home.patcher.is_dynamic() and not streamed:  # Compile VAE has taken it off dynamic VRAM
        home = moved_vae(home, without_dynamic_vram(home.patcher, what))
    return home, VAEPrecision(policy)


def _second_patcher(patcher: NetworkPatcher, policy: PrecisionPolicy) -> NetworkPatcher:
    second = patcher.clone(model_override=(_second_network(patcher.model, policy), ({}, {}, {}, set())))
    second.size, second.parent = 0, None
    # ComfyUI asks for an independent copy when it leaves dynamic VRAM.
    second.cached_patcher_init = (_load_again, (patcher, policy))
    return second


def _load_again(patcher: NetworkPatcher, policy: PrecisionPolicy, disable_dynamic: bool = False) -> NetworkPatcher:
    import comfy.model_patcher as patchers

    patcher_class = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
    network = _second_network(patcher.model, policy)
    if disable_dynamic:  # only dynamic VRAM casts weights on their way: a file's dtype can be another one
        network.to(policy.dtype)
    again: NetworkPatcher = patcher_class(
        network, load_device=patcher.load_device, offload_device=patcher.offload_device
    )
    return again


def _second_network(network: Module, policy: PrecisionPolicy) -> Module:
    second: Module = second_module(network, lambda name, tensor: policy.convert_weight(tensor))
    stage_in(second, policy.stored, policy.storage)
    return second
