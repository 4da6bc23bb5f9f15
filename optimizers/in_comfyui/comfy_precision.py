"""Model Precision and VAE Precision in ComfyUI, and the tensors that other nodes hold in the dtype of before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from ..core.activity import Activity
from ..core.errors import UnsupportedModel
from ..core.memory_format import first_channels_last
from ..core.not_copied import Args, Function, Kwargs, NotCopied
from ..core.shadow import Shadows
from ..models.families import find_family
from ..precision_policy import PrecisionPolicy, PrecisionSettings, arithmetic, choose_dtype, storage_dtype
from .run.comfy_technique import ModelCall, around_network
from .second_weights.clone import WeightPlan, require_plain_weights, second_module, stage_in, without_dynamic_vram
from .second_weights.swap import WeightTechnique, original
from .structure.model_facts import describe_model, inference_dtype, is_unet, require_model
from .structure.protocols import VAE, BaseModel, Executor, ModelPatcher, NetworkPatcher, Options
from .targets.method_proxy import NetworkCall, NetworkTechnique
from .targets.vae_target import at_home, describe_vae, moved_vae, require_vae

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
            f"channels_last is for networks of convolutions, and a {what} has hardly any.", "Switch channels_last off."
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


_ALIKE = frozenset(
    (F.scaled_dot_product_attention, F.linear, torch.einsum, torch.matmul, torch.bmm, torch.baddbmm)
    + (Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.baddbmm)
)
"""Functions that refuse tensors of different dtypes."""


class HeldTensors:
    """Lets the patches of other nodes compute in the dtype of what the network gives them.

    They hold tensors in the dtype that the MODEL had when they were made: keys of image prompts, of negative prompts,
    of boxes. Such tensors meet the network in patches and wrappers, and are cast there.
    """

    def __init__(self) -> None:
        # The same object for each patch, on which compiled graphs are guarded. It holds no patch.
        self._made: WeakKeyDictionary[Function, _Patch] = WeakKeyDictionary()
        self._inside: dict[torch.dtype, Function] = {}

    def cast_inside(self, options: Options, dtype: torch.dtype) -> None:
        """Give the network its latent and its text in ``dtype``, whatever other nodes' wrappers have added to them."""
        if options.get("wrappers", {}).get("diffusion_model"):
            around_network(options, "held", self._inside.setdefault(dtype, partial(_inside, dtype)))

    def cast(self, options: Options) -> None:
        """Let the patches in a call's own ``options`` give tensors of the dtype that they are given."""
        for name in ("patches", "patches_replace"):
            options[name] = {place: self._patches(found) for place, found in options.get(name, {}).items()}

    def _patches(self, found: Any) -> Any:
        if isinstance(found, Mapping):
            return {key: self._patch(patch) for key, patch in found.items()}
        return [self._patch(patch) for patch in found] if isinstance(found, list) else found

    def _patch(self, patch: Function) -> Function:
        try:
            if patch not in self._made:
                self._made[patch] = _Patch(patch)
            return self._made[patch]
        except TypeError:  # an object that cannot be hashed or referred to weakly
            return patch


def _inside(
    dtype: torch.dtype, executor: Executor, x: Any, timestep: Any, context: Any = None, *args: Any, **kwargs: Any
) -> Any:
    return executor(_cast(x, dtype), timestep, _cast(context, dtype), *args, **kwargs)


class _Patch(NotCopied):
    def __init__(self, patch: Function) -> None:
        self._patch = ref(patch)

    @property
    def func(self) -> Function:
        """Whose this is: see ``computed_by``."""
        patch = self._patch()
        assert patch is not None, "the options of the call hold it"
        return patch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        patch = self.func
        given = next(iter(_floating(args)), None)
        if given is None:
            return patch(*args, **kwargs)
        with _Together(given.dtype):
            result = patch(*args, **kwargs)
        return _cast(result, given.dtype)


class _Together(TorchFunctionMode):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func in _ALIKE and len({one.dtype for one in _floating((*args, *kwargs.values()))}) > 1:
            args, kwargs = _cast(args, self._dtype), _cast(kwargs, self._dtype)
        return func(*args, **kwargs)


def _floating(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _floating(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            yield value


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if type(value) in (list, tuple):
        return type(value)(_cast(one, dtype) for one in value)
    return {key: _cast(one, dtype) for key, one in value.items()} if type(value) is dict else value
