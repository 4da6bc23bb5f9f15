"""Model Precision on one MODEL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.activity import Activity
from ...core.errors import UnsupportedModel
from ...core.memory_format import first_channels_last
from ...core.shadow import Shadows
from ...models.families import find_family
from ...precision.precision_policy import PrecisionPolicy, choose_dtype, storage_dtype
from ...precision.precision_settings import PrecisionSettings, arithmetic
from ..run.comfy_technique import ModelCall, around_network
from ..second_weights.clone import WeightPlan, require_plain_weights, stage_in
from ..second_weights.swap import WeightTechnique, original
from ..structure.model_facts import describe_model, inference_dtype, is_unet, require_model
from ..structure.protocols import BaseModel, ModelPatcher
from .held_tensors import HeldTensors

_NETWORK = "diffusion_model."


class ModelPrecision(WeightTechnique):
    """Faster matrix products in each call, and weights in another dtype or memory order where the policy wants them.

    ``kept``: parts of the names of layers whose weights stay as they are.
    """

    policy: PrecisionPolicy

    def __init__(self, policy: PrecisionPolicy, kept: tuple[str, ...]) -> None:
        super().__init__(policy)
        self._kept, self._held = kept, HeldTensors()
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
        """Switch arithmetic on, cast what other nodes hold, and hand the input over in the order of the weights."""
        activity.use("call")
        if self.policy.dtype != self.policy.previous:
            self._held.cast_inside(call.transformer_options, self.policy.dtype)
            if call.foreign_patches:
                self._held.cast(call.transformer_options)
        call.cleanup.enter_context(arithmetic(self.policy.settings))
        if self.policy.settings.channels_last:
            around_network(call.transformer_options, self.kind, first_channels_last)

    def install_exactly(self, call: ModelCall, activity: Activity) -> None:
        """Compute in the dtype of before, whose numbers do not overflow: ComfyUI's layers cast their weights to it."""
        self.install(call, activity)
        self._held.cast_inside(call.transformer_options, self.policy.previous)
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
