"""The attributes of ComfyUI's objects that this package uses, as types, because ComfyUI has none for them.

A protocol names what we read, set or call of what goes through many of our files. Networks are plain
``torch.nn.Module``, values that only pass through us ``object``. All else is ``Any``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

import torch
from torch import Tensor
from torch.nn import Module

from ...core.not_copied import Function

if TYPE_CHECKING:
    from typing_extensions import Self

Options = dict[str, Any]
"""``model_options``, ``transformer_options`` (patches receive them as ``extra_options``): nested dictionaries."""

Latent = dict[str, Any]
"""A LATENT: ``samples`` ``[batch, channels, (frames,) height, width]``, and what other nodes add."""

Conditioning = Sequence[object]
"""A CONDITIONING; we only hand it on."""

Factory = tuple[Function, tuple[Any, ...]] | tuple[Function, tuple[Any, ...], int]
"""``cached_patcher_init``: a function, its arguments, and which of the results is the patcher."""

SharedBackups = tuple[Any, ...]
"""The state that clones on one BaseModel share: the second half of ``get_clone_model_override``."""


class BaseModel(Module):
    """``patcher.model`` of a MODEL: the network, and what turns its output into an image without noise."""

    diffusion_model: Module
    model_config: Any
    manual_cast_dtype: torch.dtype | None
    current_patcher: ModelPatcher | None
    current_weight_patches_uuid: UUID | None
    get_dtype: Callable[[], torch.dtype]
    get_dtype_inference: Callable[[], torch.dtype]


class NetworkPatcher(Protocol):
    """What ComfyUI clones, loads and moves a network with: here that of a VAE or ControlNet."""

    model: Module
    load_device: torch.device
    offload_device: torch.device
    size: int
    parent: Self | None
    cached_patcher_init: Factory | None

    def clone(self, disable_dynamic: bool = ..., model_override: tuple[Any, SharedBackups] | None = ...) -> Self: ...
    def get_clone_model_override(self) -> tuple[Any, SharedBackups]: ...
    def is_dynamic(self) -> bool: ...


class ModelPatcher(NetworkPatcher, Protocol):
    """A MODEL: a BaseModel with the patches, options and callbacks of one branch of the graph."""

    model: BaseModel
    model_options: Options
    patches_uuid: UUID
    backup: dict[str, Any]
    backup_buffers: dict[str, Any]
    object_patches: dict[str, Any]
    object_patches_backup: dict[str, Any]
    pinned: set[str]
    injections: dict[str, list[Any]]
    is_injected: bool
    hook_backup: dict[str, Any]
    cached_hook_patches: dict[Any, Any]
    clone_base_uuid: UUID

    def model_size(self) -> int: ...
    def loaded_size(self) -> int: ...
    def detach(self) -> BaseModel: ...
    def get_model_object(self, name: str) -> Any: ...
    def get_attachment(self, key: str) -> Any: ...
    def set_attachments(self, key: str, attachment: object) -> None: ...
    def remove_attachments(self, key: str) -> None: ...
    def get_additional_models_with_key(self, key: str) -> list[ModelPatcher]: ...

    wrappers: dict[str, Any]

    def get_wrappers(self, wrapper_type: str, key: str) -> list[Function]: ...
    def add_wrapper_with_key(self, wrapper_type: str, key: str, wrapper: Function) -> None: ...
    def remove_wrappers_with_key(self, wrapper_type: str, key: str) -> None: ...
    def add_callback_with_key(self, call_type: str, key: str, callback: Function) -> None: ...
    def remove_callbacks_with_key(self, call_type: str, key: str) -> None: ...


class Executor(Protocol):
    """What a wrapper is given: calls the next wrapper, or in the end ComfyUI's own function."""

    class_obj: Any

    def __call__(self, *args: object, **kwargs: object) -> Any: ...


Patcher = TypeVar("Patcher", bound=NetworkPatcher)


class VAE(Protocol):
    """A VAE."""

    first_stage_model: Module
    patcher: NetworkPatcher
    device: torch.device
    vae_dtype: torch.dtype
    working_dtypes: Sequence[torch.dtype]

    def decode(self, samples: Tensor) -> Tensor: ...


class ControlNet(Protocol):
    """A CONTROL_NET with a network of its own."""

    control_model: Module
    control_model_wrapped: NetworkPatcher
    previous_controlnet: ControlNet | None

    def copy(self) -> ControlNet: ...
