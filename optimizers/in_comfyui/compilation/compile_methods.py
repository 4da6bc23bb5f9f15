"""Run methods of a VAE's or ControlNet's network through torch.compile, or the blocks that they repeat."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch.nn.modules.conv import _ConvNd

from ...compilation.changing import Sizes
from ...compilation.compile_policy import CompilePolicy
from ...compilation.compile_settings import CompileSettings
from ...compilation.compiler import BLOCK_CALL, CompiledNetwork, Compiler, repeated_blocks
from ...core.activity import Activity
from ...core.memory_format import channels_last, without_gaps
from ...core.not_copied import Function
from ...core.shadow import Shadows, replacement
from ..targets.method_proxy import ModuleProxy, NetworkCall, NetworkTechnique
from .comfy_env import REPLACED, refusal
from .host_attention import BREAK_REMEDIES


class CompileMethods(NetworkTechnique):
    """torch.compile on methods of a VAE's or ControlNet's network.

    Raises `BackendUnavailable` if the mode cannot work here and no fallback is allowed.

    Args:
        methods: which to compile, as ``NetworkCall`` names them.
        notes: what was done to the object before, in sentences.
        parts: by method, the part of the network to compile in place of the whole method.
        blocks_of: a part of the network whose blocks are compiled in place of the methods, while these run: of networks
            that cut their input up in Python; see :func:`transformer_in`.
        what: what of the network is compiled, in words; "" for the methods.
    """

    policy: CompilePolicy

    def __init__(
        self,
        title: str,
        how: CompileSettings,
        methods: tuple[str, ...],
        compiler: Compiler,
        notes: tuple[str, ...],
        parts: Mapping[str, str] = MappingProxyType({}),
        blocks_of: str = "",
        what: str = "",
    ) -> None:
        what = what or " and ".join(_name(method) for method in methods)
        super().__init__(CompilePolicy(title, how, what, notes, break_remedies=BREAK_REMEDIES))
        self._methods, self._compiler, self._parts, self._blocks_of = methods, compiler, parts, blocks_of

    def by_blocks(self, part: str) -> CompileMethods:
        """Return the same for the blocks of a part in place of the methods."""
        return CompileMethods(self.title, self.policy.how, self._methods, self._compiler, (), blocks_of=part)

    def install(self, call: NetworkCall, activity: Activity) -> None:
        for method in self._methods:
            call.wrap(method, partial(self._run_method, call, method, activity))

    def _run_method(
        self, call: NetworkCall, method: str, activity: Activity, inner: Function, *args: object, **kwargs: object
    ) -> object:
        network, name = call.network, _name(method)
        reason = refusal(call.patcher, network) or (REPLACED if replacement(network, name) is not None else None)
        if reason is not None:
            activity.fall_back(reason)
            return inner(*args, **kwargs)
        # A tile is a view with gaps between its rows. How long those are must not be compiled in.
        order = channels_last if self.policy.how.channels_last else without_gaps
        args = tuple(order(value) for value in args)
        kwargs = {key: order(value) for key, value in kwargs.items()}
        with Shadows() as shadows:
            plain = partial(inner, *args, **kwargs)
            if self._blocks_of:
                return self._run_blocks(network, activity, shadows, plain)
            if name in self._parts:
                of_network = getattr(type(network), name)
                return self._run_part(network, name, activity, plain, lambda one: of_network(one, *args, **kwargs))
            compiled = self._compiled(network, name)
            with self.policy.counted(compiled, name, activity):
                return compiled(network, *args, **kwargs)

    def _run_blocks(
        self, network: torch.nn.Module, activity: Activity, shadows: Shadows, plain: Callable[[], object]
    ) -> object:
        part, how = getattr(network, self._blocks_of), self.policy.how
        compiled = self._ready(part, how, lambda: self._compiler.blocks(part, how, self.title))
        with self.policy.counted(compiled, self.policy.what, activity):
            for block in repeated_blocks(part):
                if replacement(block) is not None:
                    activity.fall_back(REPLACED)
                else:
                    shadows.put(block, BLOCK_CALL, compiled.call_of(block))
            return plain()

    def _run_part(
        self, network: torch.nn.Module, name: str, activity: Activity, plain: Function, of_network: Function
    ) -> object:
        module = getattr(network, part := self._parts[name])
        compiled = self._compiled(module, "forward")
        fallback = compiled.functions[0].state.fallback
        if fallback:
            activity.fall_back(fallback)
            return plain()
        with_part = ModuleProxy(network, {part: ModuleProxy(module, {"__call__": partial(compiled, module)})})
        fallbacks = activity.fallback_count
        with self.policy.counted(compiled, name, activity):
            result = of_network(with_part)
        # Parts hand lists on to each other. One that ran uncompiled may have filled a copy of such a list.
        return plain() if activity.fallback_count > fallbacks else result

    def _compiled(self, network: torch.nn.Module, method: str) -> CompiledNetwork:
        how, function = self.policy.how, getattr(type(network), method)  # not bound to the network
        make = partial(self._compiler.function, function, how, self.title, Sizes())
        return self._ready(network, (method, how), make)

    def _ready(self, owner: torch.nn.Module, key: Hashable, make: Callable[[], CompiledNetwork]) -> CompiledNetwork:
        compiled = self._compiler.once(owner, key, make)
        self.policy.use(compiled, self._compiler.observer(self.node_id))
        return compiled


def transformer_in(network: torch.nn.Module) -> str:
    """Return the name of the part of a network that repeats transformer blocks: linear layers and no convolution."""
    for name, part in network.named_children():
        layers = [layer for block in repeated_blocks(part) for layer in block.modules()]
        linear, convolutions = (any(isinstance(one, kind) for one in layers) for kind in (torch.nn.Linear, _ConvNd))
        if linear and not convolutions:
            return name
    return ""


def _name(method: str) -> str:
    return "forward" if method == "__call__" else method
