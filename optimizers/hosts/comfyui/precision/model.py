"""Model Precision on one MODEL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .....core.errors import UnsupportedModel
from .....core.memory_format import first_channels_last
from .....core.phrases import phrase
from ....families import find_family
from ....precision.arithmetic import arithmetic
from ....precision.policy import PrecisionPolicy, choose_dtype, storage_dtype
from ..model import describe_model, inference_dtype, is_unet, require_model
from ..stack import KEY, ComfyTechnique, ModelCall
from ..weight_clone import stage_in
from ..weight_swap import WeightTechnique, original

if TYPE_CHECKING:
    from .....core.activity import Activity
    from ....precision.settings import PrecisionSettings
    from ..protocols import BaseModel, ModelPatcher
    from ..weight_clone import WeightPlan

_NETWORK = "diffusion_model."


class ModelPrecision(PrecisionPolicy, ComfyTechnique[ModelCall]):
    """Faster matrix products and nothing else; see ``WeightPrecision`` for other weights."""

    recordable = True

    title = "Model Precision"

    def __init__(
        self, settings: PrecisionSettings, previous: torch.dtype, dtype: torch.dtype, stored: torch.dtype
    ) -> None:
        ComfyTechnique.__init__(self)
        storage = storage_dtype(stored, dtype) if dtype != previous else stored
        PrecisionPolicy.__init__(self, settings, previous, dtype, stored, storage)

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Switch arithmetic on for this call."""
        activity.use("call")
        call.cleanup.enter_context(arithmetic(self.settings))


class WeightPrecision(WeightTechnique, ModelPrecision):
    """Weights in another dtype or memory order, in a second model beside the one of the file.

    Attributes:
        kept: parts of the names of layers whose weights stay as they are.
    """

    kept: tuple[str, ...] = ()

    def plan(self, plan: WeightPlan) -> None:
        """Say what all layers compute in, and keep ComfyUI's own settings in step."""
        plan.compute_dtype = self.dtype
        if self.dtype != self.previous:
            plan.config.set_inference_dtype(self.storage, None if self.storage == self.dtype else self.dtype)

    def convert_tensor(self, name: str, tensor: Tensor, plan: WeightPlan) -> Tensor:
        """Convert the network's weights; the noise schedule beside it stays in fp32."""
        kept = not name.startswith(_NETWORK) or any(part in name for part in self.kept)
        return tensor if kept else self.convert_weight(tensor)

    def finish(self, model: BaseModel, plan: WeightPlan) -> None:
        """Tell the network what it is in now, and its layers to cast where they must."""
        if self.dtype == self.previous:
            return
        network: Any = model.diffusion_model
        model.manual_cast_dtype = None if self.storage == self.dtype else self.dtype
        network.dtype = self.storage
        stage_in(network, self.stored, self.storage, self.kept)
        if self.storage != self.dtype:
            for module in network.modules():
                if hasattr(module, "comfy_cast_weights"):
                    module.comfy_cast_weights = True

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Hand the network its input in the order of its weights: layers keep it, but for the end of transformers."""
        ModelPrecision.install(self, call, activity)
        if not self.settings.channels_last:
            return
        from comfy.patcher_extension import WrappersMP

        wrappers = dict(call.transformer_options.get("wrappers", {}))
        network = dict(wrappers.get(WrappersMP.DIFFUSION_MODEL, {}))
        network[f"{KEY}_{self.kind}"] = [first_channels_last]
        wrappers[WrappersMP.DIFFUSION_MODEL] = network
        call.transformer_options["wrappers"] = wrappers


def model_precision(patcher: ModelPatcher, settings: PrecisionSettings) -> ModelPrecision:
    """Return the technique for a MODEL, with or without other techniques on it.

    Raises:
        InvalidSetting: if this model does not work in the chosen dtype.
        UnsupportedModel: if the settings change nothing for this model.
        BackendUnavailable: if its device has no such arithmetic.
    """
    require_model(patcher)
    home = original(patcher)
    device, before = torch.device(home.load_device), inference_dtype(home)
    supported = tuple(getattr(home.model.model_config, "supported_inference_dtypes", None) or ()) or None
    what = describe_model(patcher)
    dtype = choose_dtype(settings, what, device, before, supported)
    if settings.channels_last and not is_unet(home):
        raise UnsupportedModel(
            phrase("channels_last is for networks of convolutions, and a {model} has next to none.", model=what),
            phrase("Switch {name} off.", name="channels_last"),
        )
    technique = ModelPrecision(settings, before, dtype, home.model.get_dtype())
    if technique.require_change(what, device, supported):
        technique = WeightPrecision(settings, before, dtype, technique.stored)
        family = find_family(home.model.diffusion_model)
        technique.kept = () if family is None else family.full_precision
    technique.streamed = home.is_dynamic()
    return technique
