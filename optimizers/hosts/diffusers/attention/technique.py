"""Run a diffusers model's attention with a chosen backend: diffusers' own code for it where there is one, else ours."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .....core.errors import UnsupportedModel, require_choice
from .....core.shared import Args, Function, Kwargs
from .....core.technique import COMPILATION, TOKEN_MERGING
from ....attention.backend import Inputs
from ....attention.policy import AUTO, HOST_DOES_IT, AttentionPolicy, limit_of
from ....attention.registry import backend_names
from ..components import CONTROLNET, DENOISER, VAE, device_of
from ..host import Host, PipelineTechnique
from ..intercept import intercepted
from ..patches import Patches
from .theirs import Theirs, chosen_already, use_sdpa, use_theirs

_NO_SDPA = "its processor does not use scaled_dot_product_attention"


@dataclass(frozen=True)
class Attention:
    """Which attention backend to use: the setting of the node Set Attention Processor.

    ``backend``: ``auto``, or a name of ``optimizers/attention``, e.g. ``sdpa``, ``xformers``; else `InvalidSetting`.
    """

    backend: str = AUTO

    def __post_init__(self) -> None:
        require_choice("backend", self.backend, (AUTO, *backend_names()))


class ComponentAttention(PipelineTechnique):
    """Set Attention Processor on one component.

    On attaching, raises `BackendUnavailable` if the backend cannot run on its device or takes none of its head sizes,
    `UnsupportedModel` if it has no attention that could be reached.
    """

    kind, title = AttentionPolicy.kind, AttentionPolicy.title
    roles = (DENOISER, CONTROLNET, VAE)
    policy: AttentionPolicy

    def __init__(self, settings: Attention) -> None:
        super().__init__(settings)
        self._unguarded: list[Theirs] = []
        self._left = ""

    def attach(self, host: Host, patches: Patches) -> None:
        part = host.component.part
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
        backend = policy.backend.name
        # What reduces keys inside of attention has to see them, which it does not in diffusers' own xformers code.
        reduced = host.find(TOKEN_MERGING) is not None and backend != "sdpa"
        compiled = host.find(COMPILATION) is not None
        # Approximate kernels are watched in our own function only.
        reduced = reduced or (bool(policy.approximation) and not compiled)
        counts: dict[str, int] = {}
        left: dict[str, int] = {}
        for name, layer in layers:
            chosen = chosen_already(layer) if self.settings.backend == AUTO else ""
            if chosen:
                left[chosen] = left.get(chosen, 0) + 1
                continue
            ours = reduced or head_size(layer) in policy.failing
            theirs = None if ours else use_theirs(layer, backend, patches)
            if theirs is None:
                use_sdpa(layer, patches)
                patches.wrap(layer, "forward", functools.partial(self._routed, host, name))
            elif not compiled:
                patches.wrap(layer, "forward", functools.partial(self._guarded, theirs, head_size(layer)))
            else:  # compiled code catches no errors, and would be compiled anew for the function of each layer
                self._unguarded.append(theirs)
            whose = "ours" if theirs is None else theirs.name
            counts[whose] = counts.get(whose, 0) + 1
        self._left = ", ".join(
            f"{whose} on {count} layer{'' if count == 1 else 's'} was chosen before, which auto leaves in place"
            for whose, count in left.items()
        )
        used = ", ".join(f"{whose} on {count} layers" for whose, count in counts.items())
        policy.notes = tuple(filter(None, (used, self._left)))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        if self._left:
            self.activity.skip(HOST_DOES_IT, self._left)
        for theirs in self._unguarded:
            theirs.count(self.activity)

    def _routed(self, host: Host, name: str, forward: Function) -> Function:
        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            mask, scale, enable_gqa = options.get("attn_mask"), options.get("scale"), options.get("enable_gqa", False)
            inputs = Inputs(q, k, v, mask, scale, enable_gqa)
            plain = not options.get("is_causal") and not options.get("dropout_p")
            refusal = None if plain else "causal attention or dropout (takes neither)"
            output = self.policy.attend(self.activity, name, inputs, refusal, evaluation=host.evaluation)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options) if output is None else output

        return intercepted(forward, attend, lambda: self.activity.fall_back(_NO_SDPA))

    def _guarded(self, theirs: Theirs, size: int, forward: Function) -> Function:
        """Return ``forward`` of a layer that runs as before once diffusers' code for the backend has failed."""
        kind, broken = (size,), self.policy.broken

        @functools.wraps(forward)
        def guarded(*args: object, **options: object) -> object:
            if kind not in broken or theirs.replacement:
                try:
                    result = forward(*args, **options)
                except Exception as error:
                    if theirs.replacement:
                        raise
                    reason = limit_of(error)
                else:
                    theirs.count(self.activity)
                    return result
                theirs.switch(False)
                try:
                    result = forward(*args, **options)
                except BaseException:  # it is not for the backend that it fails
                    theirs.switch(True)
                    raise
                broken[kind] = reason
            else:
                theirs.switch(False)
                result = forward(*args, **options)
            self.activity.fall_back(broken[kind])
            return result

        return guarded


def head_size(layer: Any) -> int:
    """Return the channels of one head of an attention layer."""
    size = getattr(layer, "head_dim", None)
    return int(size) if size is not None else int(layer.inner_dim) // int(layer.heads)
