"""What a variant puts on a MODEL: our nodes and ComfyUI's own, each as a function from MODEL to MODEL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import torch

from .record import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from comfy_host.pack import load_nodes  # noqa: E402

Apply = Callable[[Any], Any]
"""Makes the MODEL or VAE of a variant from the plain one, anew for each run."""


def node(name: str, **inputs: Any) -> Apply:
    """Return what puts a node on what its first input takes; inputs that are not given have their defaults.

    Args:
        name: the id of one of ours, or ``module:class`` of one of ComfyUI's.
        inputs: of the node.
    """

    def apply(target: Any) -> Any:
        found = resolve_name(name) if ":" in name else load_nodes()[name]
        schema = found.define_schema().inputs
        defaults = {one.id: getattr(one, "default", None) for one in schema}
        given = {key: value for key, value in (defaults | inputs).items() if value is not None}
        return found.execute(**{**given, schema[0].id: target}).args[0]

    return apply


def tome(**settings: Any) -> Apply:
    """Return what puts Apply ToMe on a model: a preset, or settings of one's own, by default without ``residual``.

    Nothing switches it off where it gains no time: whether it does is what is measured.
    """
    resolve_name("paceline.optimizers.token_merging.gains:Gains").note = lambda *_: None
    return node("PacelineApplyToMe", **({"residual": "off"} | settings))


def reused(budget: float) -> Apply:
    """Return what puts Reuse Steps on a model."""
    return node("PacelineReuseSteps", budget=budget)


def core_tome(ratio: float) -> Apply:
    """Return what puts ComfyUI's TomePatchModel on a model."""
    return node("comfy_extras.nodes_tomesd:TomePatchModel", ratio=ratio)


def core_cache(name: str, threshold: float) -> Apply:
    """Return what puts ComfyUI's EasyCache or LazyCache on a model.

    EasyCache writes its forecast into the input of the network, which with flow matching in float32 is the sampler's
    own latent, so it gets a copy, as the network does where it computes in half precision.
    """
    put = node(f"comfy_extras.nodes_easycache:{name}Node", reuse_threshold=threshold)

    def on_copy(executor: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return executor(x.clone(), *args, **kwargs)

    def apply(patcher: Any) -> Any:
        from comfy.patcher_extension import WrappersMP

        clone = patcher.clone()
        clone.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "copy", on_copy)
        return put(clone)

    return apply


def core_compile(backend: str) -> Apply:
    """Return what puts ComfyUI's TorchCompileModel on a model, also with a backend that it does not offer."""
    return node("comfy_extras.nodes_torch_compile:TorchCompileModel", backend=backend)
