"""Put a clone of a MODEL on a second BaseModel with other weights, and back on the original.

The clone keeps its LoRA patches, wrappers, callbacks and options. Nothing here keeps the original alive: once ComfyUI's
cache has dropped it, going back loads the file again.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.nn import Module

from ...core import technique as core
from ...core.errors import UnsupportedModel
from ...core.not_copied import NotCopied
from ..run.comfy_technique import ComfyTechnique, ModelCall
from ..structure.model_facts import FOREIGN_COMPILE, describe_model, first_of
from ..structure.protocols import BaseModel, Factory, ModelPatcher, SharedBackups
from .clone import WeightPlan, require_plain_weights, second_module

ORIGIN = "paceline_origin"
"""Attachment of a re-based clone: the original it came from."""

_AFTER = "Put that node after the nodes that change the weights (Quantize int8, Model Precision)."


class WeightTechnique(ComfyTechnique[ModelCall]):
    """A technique whose work is other weights, on a second model that is built when it is attached.

    Techniques are asked in their canonical order; the first one to replace a module wins. The weights they see are
    always those of the file, so the order of nodes does not matter. ``changes_weights``: whether this one needs a
    second model.
    """

    changes_weights = True

    def plan(self, plan: WeightPlan) -> None:  # noqa: B027 - most change nothing
        """Change the configuration of the second model, before any module is made."""

    def replace_module(self, name: str, module: Module, plan: WeightPlan) -> Module | None:
        """Return a new module to take the place of ``module`` (which stays as it is), or None."""
        return None

    def convert_tensor(self, name: str, tensor: torch.Tensor, plan: WeightPlan) -> torch.Tensor:
        """Return the second model's tensor for a parameter or buffer; a new tensor if it differs."""
        return tensor

    def finish(self, model: BaseModel, plan: WeightPlan) -> None:  # noqa: B027 - most change nothing
        """Change attributes of the second model that are neither modules nor tensors."""

    def model_for(self, patcher: ModelPatcher, techniques: tuple[core.Technique, ...]) -> ModelPatcher:
        """Return ``patcher``, or a clone of it, on a BaseModel with exactly the weights that ``techniques`` ask for.

        Raises `UnsupportedModel` if something on the MODEL is tied to the network it is on now.
        """
        wanted = tuple(item for item in techniques if isinstance(item, WeightTechnique) and item.changes_weights)
        origin = patcher.get_attachment(ORIGIN)
        if wanted == (origin[1] if origin else ()):
            return patcher
        home = original(patcher)
        if not wanted:
            return home
        found = origin[0] if origin else Origin(home)
        unload(home)
        clone = _moved(home, _build_second_model(home, wanted), ({}, {}, {}, set()))
        clone.clone_base_uuid = uuid.uuid4()
        # multi-GPU clones and clone(disable_dynamic=True) ask for an independent copy of this model
        clone.cached_patcher_init = (_load_again, (patcher.load_device, patcher.offload_device, found, wanted))
        clone.set_attachments(ORIGIN, (found, wanted))
        return clone


class Origin(NotCopied):
    """The original of a re-based clone: enough to go back to it. Made of a clone on the original BaseModel."""

    def __init__(self, patcher: ModelPatcher) -> None:
        self.factory = patcher.cached_patcher_init
        self.clone_base_uuid = patcher.clone_base_uuid
        self._options: dict[str, bool] = {}
        self._set(patcher)

    def _set(self, patcher: ModelPatcher) -> None:
        self._is_dynamic = patcher.is_dynamic()
        model, self._shared = patcher.get_clone_model_override()
        self._model = weakref.ref(model)
        first = first_of(patcher)
        self._first = weakref.ref(first)
        # A model that came from no file could not be loaded again.
        self._kept = first if self.factory is None else None

    @property
    def first(self) -> ModelPatcher | None:
        """The patcher that ``first_of`` gives for the original, while a reference to it exists."""
        return self._first()

    def model_override(self) -> tuple[BaseModel, SharedBackups]:
        """Return the original BaseModel and the state that its clones share; loaded from its file if it was freed."""
        model = self._model()
        if model is None:
            assert self.factory is not None, "a model that cannot be made again is kept"
            patcher = _made_by(self.factory, self._options)
            if patcher.is_dynamic() and not self._is_dynamic:  # Compile UNet came before
                self._options = {"disable_dynamic": True}
                patcher = _made_by(self.factory, self._options)
            self._set(patcher)
            model = patcher.model
        return model, self._shared


def _made_by(factory: Factory, options: dict[str, bool]) -> ModelPatcher:
    made = factory[0](*factory[1], **options)
    patcher: ModelPatcher = made[factory[2]] if len(factory) > 2 else made
    return patcher


def unload(patcher: ModelPatcher) -> None:
    """Take a BaseModel off its device and all patches off it, so that its weights are those of the file."""
    import comfy.model_management

    comfy.model_management.unload_model_and_clones(patcher, unload_additional_models=False, all_devices=True)
    loaded = patcher.model.current_weight_patches_uuid is not None
    if loaded or patcher.backup or patcher.backup_buffers or patcher.object_patches_backup:
        patcher.detach()  # a clone that was loaded and then dropped leaves its weights behind


def original(patcher: ModelPatcher) -> ModelPatcher:
    """Return a MODEL on the original BaseModel: ``patcher`` itself unless it is re-based. For reading weights."""
    attached = patcher.get_attachment(ORIGIN)
    if attached is None:
        return patcher
    origin: Origin = attached[0]
    model, shared = origin.model_override()
    clone = _moved(patcher, model, shared)
    clone.parent = origin.first
    clone.clone_base_uuid = origin.clone_base_uuid
    clone.cached_patcher_init = origin.factory
    clone.remove_attachments(ORIGIN)
    return clone


def _load_again(
    load_device: torch.device,
    offload_device: torch.device,
    origin: Origin,
    techniques: tuple[WeightTechnique, ...],
    disable_dynamic: bool = False,
) -> ModelPatcher:
    """ComfyUI's factory of a re-based model: return a new patcher on a BaseModel of its own."""
    import comfy.model_patcher as patchers

    model, shared = origin.model_override()
    home: ModelPatcher = patchers.CoreModelPatcher(model, load_device=load_device, offload_device=offload_device)
    home.clone_base_uuid = origin.clone_base_uuid
    home.backup, home.backup_buffers, home.object_patches_backup, home.pinned = shared
    unload(home)
    patcher_class = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
    second = _build_second_model(home, techniques)
    patcher: ModelPatcher = patcher_class(second, load_device=load_device, offload_device=offload_device)
    return patcher


def _build_second_model(patcher: ModelPatcher, techniques: Sequence[WeightTechnique]) -> BaseModel:
    """Return a second BaseModel beside that of ``patcher``, with the changes of ``techniques``.

    The original must be unloaded (see :func:`unload`). Raises `UnsupportedModel` if its weights are foreign.
    """
    base = patcher.model
    require_plain_weights(techniques[0].title, base, describe_model(patcher))
    config = object.__new__(type(base.model_config))  # `copy.copy` trips over the class's own `__getattr__`
    config.__dict__.update(base.model_config.__dict__, unet_config=dict(base.model_config.unet_config))
    plan = WeightPlan(config, base.get_dtype_inference())
    for technique in techniques:
        technique.plan(plan)

    def replace(name: str, module: Module) -> Module | None:
        found = (technique.replace_module(name, module, plan) for technique in techniques)
        return next((module for module in found if module is not None), None)

    def convert(name: str, tensor: torch.Tensor) -> torch.Tensor:
        for technique in techniques:
            tensor = technique.convert_tensor(name, tensor, plan)
        return tensor

    model = second_module(base, convert, replace, {id(base.model_config): config})
    model.current_patcher = None
    forget = getattr(model.diffusion_model, "clear_kv_cache", None)
    if callable(forget):  # HiDream O1 keeps keys that the other weights made
        forget()
    for technique in techniques:
        technique.finish(model, plan)
    return model


def _moved(patcher: ModelPatcher, model: BaseModel, shared: SharedBackups) -> ModelPatcher:
    """Return a clone of ``patcher`` on ``model``, without what only made sense on the BaseModel it was on."""
    if patcher.injections:
        raise UnsupportedModel(
            f"This {describe_model(patcher)} has layers injected into its network ({', '.join(patcher.injections)}; a "
            "LoRA loaded in bypass mode does that), and they cannot follow to other weights.",
            _AFTER,
        )
    if patcher.get_additional_models_with_key("multigpu"):
        raise UnsupportedModel(
            f"MultiGPU CFG Split has already loaded this {describe_model(patcher)} for another GPU, where its weights "
            "would stay as they are.",
            _AFTER,
        )
    clone = patcher.clone(model_override=(model, shared))
    clone.size = 0  # the weights have another size
    clone.patches_uuid = uuid.uuid4()  # or ComfyUI believes that this clone's weights are loaded already
    clone.parent = None  # it would keep the original alive, and ComfyUI would swap one for the other
    clone.is_injected = False
    clone.hook_backup = {}
    clone.cached_hook_patches = {}
    clone.object_patches = {
        path: _carried(patcher, path, value, model) for path, value in patcher.object_patches.items()
    }
    _compile_again(clone)
    return clone


def _carried(patcher: ModelPatcher, path: str, value: Any, model: BaseModel) -> object:
    """Return another node's object patch for ``model``; bound methods follow to the layer of the same name."""
    if isinstance(value, torch.nn.Module) and path.startswith("diffusion_model"):
        raise UnsupportedModel(
            f"Another node has put its own module in the place of {path}, which holds weights of the full-precision "
            "network.",
            _AFTER,
        )
    names = {id(module): name for name, module in patcher.model.named_modules()}
    other_dtype = model.get_dtype_inference() != patcher.model.get_dtype_inference()
    for held in _held(value):
        layer = id(getattr(held, "__self__", held)) in names
        if layer or (other_dtype and isinstance(held, torch.Tensor) and held.is_floating_point()):
            what = "layers of the network whose weights change" if layer else "tensors in the dtype that changes"
            raise UnsupportedModel(f"Another node's function in the place of {path} holds {what}.", _AFTER)
    name = names.get(id(value.__self__)) if isinstance(value, MethodType) else None
    return value if name is None else MethodType(value.__func__, model.get_submodule(name))


def _held(function: Any) -> Iterator[Any]:
    """Yield what a function holds: what it was given before, its closure, its defaults."""
    while isinstance(function, partial):
        yield from (*function.args, *function.keywords.values())
        function = function.func
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # nothing is in it yet
            yield cell.cell_contents
    yield from getattr(function, "__defaults__", None) or ()
    yield from (getattr(function, "__kwdefaults__", None) or {}).values()


def _compile_again(clone: ModelPatcher) -> None:
    """Redo ComfyUI's torch.compile wrapper, whose closure runs the network that it was made with."""
    from comfy.patcher_extension import WrappersMP

    wrappers = clone.get_wrappers(WrappersMP.APPLY_MODEL, FOREIGN_COMPILE)
    settings = clone.model_options.get("torch_compile_kwargs")
    if not wrappers or settings is None or wrappers[-1].__name__ != "apply_torch_compile_wrapper":
        return
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    compiled = [cell.cell_contents for cell in wrappers[-1].__closure__ or () if isinstance(cell.cell_contents, dict)]
    keys = list(compiled[0]) if compiled else ["diffusion_model"]
    set_torch_compile_wrapper(model=clone, keys=keys, **settings)
