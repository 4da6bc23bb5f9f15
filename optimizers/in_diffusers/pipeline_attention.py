"""Run a diffusers model's attention with a chosen backend, in the place of torch's.

Every attention processor of diffusers, and those of others (IP-Adapter, PAG), ends in
``torch.nn.functional.scaled_dot_product_attention``. A torch function mode around a processor is given that one call.
Uncompiled it costs some 35 microseconds for each attention layer; torch.compile traces through it and leaves nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from ..attention.attention_policy import AUTO, HOST_DOES_IT, AttentionPolicy
from ..attention.backend import Inputs
from ..attention.registry import BACKENDS, OWN
from ..core.errors import UnsupportedModel, require_choice
from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import COMPILATION
from .components import CONTROLNET, DENOISER, VAE, device_of
from .host import Host
from .patches import Patches, Wrap, computed_by_others
from .pipeline_technique import PipelineTechnique

_AGAIN = "call optimize again to replace it"
_BACKEND = "_attention_backend"
"""Attribute of processors (models after 2024) whose attention diffusers' dispatcher computes."""

_DISPATCHED = {
    OWN: "native",
    "sdpa_flash": "_native_flash",
    "sdpa_efficient": "_native_efficient",
    "sdpa_cudnn": "_native_cudnn",
    "sdpa_math": "_native_math",
    "xformers": "xformers",
    "sage": "sage",
}
"""Its names of our backends, for code that blocks share: with a function of ours each block would be compiled anew."""

_THROUGH_TORCH = {
    "AttnProcessor": "AttnProcessor2_0",
    "XFormersAttnProcessor": "AttnProcessor2_0",
    "AttnAddedKVProcessor": "AttnAddedKVProcessor2_0",
    "XFormersAttnAddedKVProcessor": "AttnAddedKVProcessor2_0",
    "XFormersJointAttnProcessor": "JointAttnProcessor2_0",
}
"""diffusers' processors with an attention of their own (older models), and those that do the same with torch's."""


class LayerAttention:
    """What a layer computes with, in each call: what it had when it was optimized, or the same with torch's attention.

    What somebody has put there since is left alone: it is what runs, and it is not counted as the backend.

    Attributes:
        computes_itself: whether it ends in ``backend`` without a function of ours; of ``compiled`` layers more do.
        wraps: what stands on the layer in each call.
    """

    def __init__(self, layer: Any, patches: Patches, backend: str, compiled: bool) -> None:
        from diffusers.models import attention_processor
        from diffusers.models.attention_dispatch import AttentionBackendName

        self._layer, self._processor = layer, layer.get_processor()
        self._backend = getattr(self._processor, _BACKEND, None)
        self._on = True
        self.wraps: list[Wrap] = []
        found = type(self._processor).__name__
        known = {*_THROUGH_TORCH, *_THROUGH_TORCH.values()}
        self.computes_itself = backend == OWN and found in known
        if hasattr(self._processor, _BACKEND):
            self.computes_itself = backend == OWN or (compiled and backend in _DISPATCHED)
            theirs = AttentionBackendName(_DISPATCHED[backend if self.computes_itself else OWN])
            # ``set_attention_backend()`` would change that of every other model in the process as well.
            self.wraps.append(patches.shadow(self._processor, _BACKEND, theirs))
        elif found in _THROUGH_TORCH:
            same = getattr(attention_processor, _THROUGH_TORCH[found])()
            self.wraps.append(patches.shadow(layer, "processor", same))

    def left_to(self) -> str:
        """Leave the layer to those who compute it, or have set something since, and say who; "" for nobody.

        Asked between calls.
        """
        reason, now = computed_by_others(self._layer), self._layer.get_processor()
        backend = getattr(now, _BACKEND, None)
        if not reason and now is not self._processor:
            reason = f"other code has set {type(now).__name__} since: {_AGAIN}"
        elif not reason and backend != self._backend:
            reason = f"other code has set the backend {backend} since: {_AGAIN}"
        if bool(reason) is self._on:
            self._on = not reason
            for wrap in self.wraps:
                wrap.switch(self._on)
        return reason


def chosen_already(layer: Any) -> str:
    """Return which attention of diffusers the program has chosen for a layer; "" if it has chosen none."""
    processor = layer.get_processor()
    if not hasattr(processor, _BACKEND):
        name = type(processor).__name__
        return f"diffusers' {name}" if name.startswith("XFormers") and name in _THROUGH_TORCH else ""
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

    backend = getattr(processor, _BACKEND) or _AttentionBackendRegistry.get_active_backend()[0]
    name = AttentionBackendName(backend).value
    return "" if name == _DISPATCHED[OWN] else f"diffusers' dispatcher ({name})"


SdpaFunction = Callable[..., Tensor]
"""Takes what ``scaled_dot_product_attention`` takes: three tensors by place, everything else by name."""

_TENSORS = ("query", "key", "value")
_OPTIONS = ("attn_mask", "dropout_p", "is_causal")


class AttentionIntercept(TorchFunctionMode):
    """Hand calls of ``scaled_dot_product_attention`` to ``attend``, inside of which the mode is off."""

    def __init__(self, attend: SdpaFunction) -> None:
        super().__init__()
        self.attend = attend
        self.reached = False

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if func is F.scaled_dot_product_attention:
            self.reached = True
            # Query, key and value by place, and the options by name: callers pass either in either way.
            options = {**dict(zip(_OPTIONS, args[3:], strict=False)), **(kwargs or {})}
            return self.attend(*args[:3], *(options.pop(name) for name in _TENSORS[len(args) :]), **options)
        if func is Tensor.unflatten:
            # torch.compile cannot trace this method's call of its base class out of a mode (torch 2.13).
            return _unflatten(*args, **(kwargs or {}))  # type: ignore[arg-type]
        return func(*args, **(kwargs or {}))


def intercepted(layer: Module, forward: Function, attend: SdpaFunction, missed: Callable[[], None]) -> Function:
    """Return ``forward`` of a layer with its attention computed by ``attend``; ``missed`` is told where it was not.

    Not where a hook of diffusers may have answered for it, as its caches do.
    """
    mode = AttentionIntercept(attend)

    @functools.wraps(forward)
    def run(*args: object, **options: object) -> object:
        mode.reached = False
        with mode:
            result = forward(*args, **options)
        if not mode.reached and not getattr(getattr(layer, "_diffusers_hook", None), "hooks", None):
            missed()
        return result

    return run


def _unflatten(tensor: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    dim = dim % tensor.dim()
    return tensor.reshape(*tensor.shape[:dim], *sizes, *tensor.shape[dim + 1 :])


_NO_SDPA = "its processor does not use scaled_dot_product_attention"


@dataclass(frozen=True)
class Attention:
    """Which attention backend to use: the setting of the node Set Attention Processor.

    ``backend``: ``auto``, or a name of ``optimizers/attention``, e.g. ``sdpa``, ``xformers``; else `InvalidSetting`.
    """

    backend: str = AUTO

    def __post_init__(self) -> None:
        require_choice("backend", self.backend, (AUTO, *BACKENDS))


class ComponentAttention(PipelineTechnique):
    """Set Attention Processor on one component.

    On attaching, raises `BackendUnavailable` if the backend cannot run on its device or takes none of its head sizes,
    `UnsupportedModel` if it has no attention that could be reached.
    """

    kind, title = AttentionPolicy.kind, AttentionPolicy.title
    roles = (DENOISER, CONTROLNET, VAE)
    policy: AttentionPolicy

    def attach(self, host: Host, patches: Patches) -> None:
        part = host.component.part
        self._choices: list[LayerAttention] = []
        needed = ("get_processor", "heads", "to_q")
        layers = [(name, one) for name, one in part.named_modules() if all(hasattr(one, each) for each in needed)]
        if not layers:
            raise UnsupportedModel(
                f"Set Attention Processor: {host.component.class_name} has no attention of diffusers' own classes.",
                "Leave it out for this component, with components=...",
            )
        sizes = sorted({head_size(layer) for _, layer in layers})
        dtype = getattr(part, "dtype", None) or next(part.parameters()).dtype
        self.policy = policy = AttentionPolicy(self.settings.backend, device_of(part), dtype, sizes)
        left, compiled = Counter[str](), host.find(COMPILATION) is not None
        for name, layer in layers:
            if self.settings.backend == AUTO and (chosen := chosen_already(layer)):
                left[chosen] += 1
                continue
            choice = LayerAttention(layer, patches, policy.backend.name, compiled)
            if not choice.computes_itself:
                choice.wraps.append(patches.wrap(layer, "forward", functools.partial(self._routed, host, name, layer)))
            self._choices.append(choice)
        self._left = ", ".join(
            f"{whose} on {count} layer{'' if count == 1 else 's'} was chosen before, which auto leaves in place"
            for whose, count in left.items()
        )
        policy.notes = [self._left] if self._left else []

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        if self._left:
            self.activity.skip(HOST_DOES_IT, self._left)
        for choice in self._choices:
            if reason := choice.left_to():
                self.activity.fall_back(reason)
            elif choice.computes_itself:
                self.activity.use(self.policy.backend.name)

    def _routed(self, host: Host, name: str, layer: Module, forward: Function) -> Function:
        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            mask, scale, enable_gqa = options.get("attn_mask"), options.get("scale"), options.get("enable_gqa", False)
            inputs = Inputs(q, k, v, mask, scale, enable_gqa)
            plain = not options.get("is_causal") and not options.get("dropout_p")
            refusal = None if plain else "causal attention or dropout (takes neither)"
            output = self.policy.attend(self.activity, name, inputs, refusal, evaluation=host.evaluation)
            return F.scaled_dot_product_attention(q, k, v, **options) if output is None else output

        return intercepted(layer, forward, attend, lambda: self.activity.fall_back(_NO_SDPA))


def head_size(layer: Any) -> int:
    """Return the channels of one head of an attention layer."""
    size = getattr(layer, "head_dim", None)
    return int(size) if size is not None else int(layer.inner_dim) // int(layer.heads)
