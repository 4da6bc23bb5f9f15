"""Model Precision on one MODEL, and VAE Precision: a VAE in another dtype, beside the one that is there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from .....core.activity import Activity
from .....core.errors import UnsupportedModel
from .....core.memory_format import first_channels_last
from .....core.shadow import Shadows
from ....families import find_family
from ....precision.arithmetic import arithmetic
from ....precision.policy import PrecisionPolicy, choose_dtype, storage_dtype
from ....precision.settings import PrecisionSettings
from ..compilation.refusals import without_dynamic_vram
from ..runtime.stack import KEY, ModelCall
from ..structure.protocols import VAE, BaseModel, ModelPatcher, NetworkPatcher
from ..targets.method_proxy import NetworkCall, NetworkTechnique
from ..targets.model import describe_model, inference_dtype, is_unet, require_model
from ..targets.vae import at_home, describe_vae, moved_to, require_vae
from ..weights.clone import WeightPlan, require_plain_weights, second_module, stage_in
from ..weights.swap import WeightTechnique, original

_NETWORK = "diffusion_model."


class ModelPrecision(WeightTechnique):
    """Faster matrix products in each call, and weights in another dtype or memory order where the policy wants them.

    ``kept``: parts of the names of layers whose weights stay as they are.
    """

    policy: PrecisionPolicy

    def __init__(self, policy: PrecisionPolicy, kept: tuple[str, ...]) -> None:
        super().__init__(policy)
        self._kept = kept
        self.changes_weights = policy.changes_weights

    def plan(self, plan: WeightPlan) -> None:
        policy = self.policy
        plan.compute_dtype = policy.dtype
        if policy.dtype != policy.previous:
            plan.config.set_inference_dtype(policy.storage, None if policy.storage == policy.dtype else policy.dtype)

    def convert_tensor(self, name: str, tensor: Tensor, plan: WeightPlan) -> Tensor:
        """Convert the network's weights; the noise schedule beside it stays in fp32."""
        kept = not name.startswith(_NETWORK) or any(part in name for part in self._kept)
        return tensor if kept else self.policy.convert_weight(tensor)

    def finish(self, model: BaseModel, plan: WeightPlan) -> None:
        dtype, storage = self.policy.dtype, self.policy.storage
        if dtype == self.policy.previous:
            return
        network: Any = model.diffusion_model
        model.manual_cast_dtype = None if storage == dtype else dtype
        network.dtype = storage
        stage_in(network, self.policy.stored, storage, self._kept)
        if storage != dtype:
            for module in network.modules():
                if hasattr(module, "comfy_cast_weights"):
                    module.comfy_cast_weights = True

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Switch arithmetic on, and hand the network its input in the order of its weights, which layers keep."""
        activity.use("call")
        call.cleanup.enter_context(arithmetic(self.policy.settings))
        if not self.policy.settings.channels_last:
            return
        from comfy.patcher_extension import WrappersMP

        wrappers = dict(call.transformer_options.get("wrappers", {}))
        network = dict(wrappers.get(WrappersMP.DIFFUSION_MODEL, {}))
        network[f"{KEY}_{self.kind}"] = [first_channels_last]
        wrappers[WrappersMP.DIFFUSION_MODEL] = network
        call.transformer_options["wrappers"] = wrappers

    def install_exactly(self, call: ModelCall, activity: Activity) -> None:
        """Compute in the dtype of before, whose numbers do not overflow: ComfyUI's layers cast their weights to it."""
        self.install(call, activity)
        shadows = call.cleanup.enter_context(Shadows())
        shadows.put(call.model, "manual_cast_dtype", self.policy.previous)
        for module in call.model.diffusion_model.modules():
            if hasattr(module, "comfy_cast_weights"):
                shadows.put(module, "comfy_cast_weights", True)


def model_precision(patcher: ModelPatcher, settings: PrecisionSettings) -> ModelPrecision:
    """Return the technique for a MODEL, with or without other techniques on it.

    Raises `InvalidSetting` if it does not work in the chosen dtype, `UnsupportedModel` if nothing changes,
    `BackendUnavailable` if its device has no such arithmetic.
    """
    require_model(patcher)
    home = original(patcher)
    require_plain_weights("Model Precision", home.model, describe_model(home))
    device, before, stored = torch.device(home.load_device), inference_dtype(home), home.model.get_dtype()
    supported = tuple(getattr(home.model.model_config, "supported_inference_dtypes", None) or ()) or None
    what = describe_model(patcher)
    dtype = choose_dtype(settings, what, device, before, supported)
    if settings.channels_last and not is_unet(home):
        raise UnsupportedModel(
            f"channels_last is for networks of convolutions, and a {what} has next to none.",
            "Switch channels_last off.",
        )
    storage = storage_dtype(stored, dtype) if dtype != before else stored
    streamed = home.is_dynamic()
    policy = PrecisionPolicy("Model Precision", settings, before, dtype, stored, storage, streamed=streamed)
    policy.require_change(what, device, supported)
    return ModelPrecision(policy, _kept(home.model.diffusion_model))


def _kept(network: torch.nn.Module) -> tuple[str, ...]:
    family = find_family(network)
    if family is None:
        return ()
    more = (part for attribute, part in family.full_precision_if if getattr(network, attribute, False))
    return (*family.full_precision, *more)


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
        home = moved_to(home, _second_patcher(home.patcher, policy), vae_dtype=dtype)
    if home.patcher.is_dynamic() and not streamed:  # Compile VAE has taken it off dynamic VRAM
        home = moved_to(home, without_dynamic_vram(home.patcher, what))
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
