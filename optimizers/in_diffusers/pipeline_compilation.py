"""Compile a component as diffusers pipelines call it: a denoiser's forward, a VAE's decode."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..compilation.changing import Sizes
from ..compilation.compile_policy import CompilePolicy
from ..compilation.compile_settings import CompileSettings
from ..compilation.compiler import BLOCK_CALL, CompiledNetwork, Compiler, describe_blocks, repeated_blocks
from ..core.errors import UnsupportedModel
from ..core.not_copied import Function
from ..core.technique import INT8
from .components import CONTROLNET, DENOISER, VAE
from .host import Host
from .patches import Patches, to_channels_last
from .pipeline_technique import PipelineTechnique


@dataclass(frozen=True)
class Compile(CompileSettings):
    """How to compile: the settings of the nodes Compile UNet, VAE and ControlNet, and one more.

    Attributes:
        channels_last: keep weights too with their channels last in memory, as convolutions on GPUs like it.
        regional: compile the repeated blocks instead of the whole network (diffusers' ``compile_repeated_blocks``): a
            few times quicker to compile, a little slower to run. Denoisers that name their blocks only.
    """

    regional: bool = False


class ComponentCompilation(PipelineTechnique):
    """Compile on one component.

    Raises `BackendUnavailable` if the mode cannot work here and no fallback is allowed; on attaching,
    `UnsupportedModel` where the component cannot be compiled as asked.
    """

    kind, title = CompilePolicy.kind, "Compile"
    policy: CompilePolicy
    roles = (DENOISER, CONTROLNET, VAE)

    def attach(self, host: Host, patches: Patches) -> None:
        component, how = host.component, self.settings
        if how.channels_last:
            to_channels_last(component.part, patches)
        if getattr(how, "regional", False) and component.role != VAE:
            self.policy = CompilePolicy(self.title, how, self._blocks(host))
            int8: Any = host.find(INT8)
            alike = nullcontext if int8 is None else int8.block
            blocks = Compiler().blocks(component.part, how, component.name)
            self.policy.use(blocks)
            for block in repeated_blocks(component.part):
                patches.shadow(block, BLOCK_CALL, blocks.call_of(block, alike))
            host.wrap_entries(partial(partial, self._run, blocks), component.entry)
        else:
            self.policy = CompilePolicy(self.title, how, f"{component.name}.{component.entry}")
            host.wrap_entries(self._compiled, component.entry)

    def _compiled(self, inner: Function) -> Function:
        whole = Compiler().function(inner, self.settings, self.policy.what, Sizes())
        self.policy.use(whole)
        return partial(self._run, whole, whole)

    def _run(self, compiled: CompiledNetwork, function: Function, *args: object, **kwargs: object) -> object:
        with self.policy.counted(compiled, self.policy.what, self.activity):
            return function(*args, **kwargs)

    @staticmethod
    def _blocks(host: Host) -> str:
        component = host.component
        if not getattr(component.part, "_repeated_blocks", None):
            raise UnsupportedModel(
                f"Compile: regional is on, but {component.class_name} does not name its repeated blocks.",
                "Switch regional off for this component, or leave it out with components=...",
            )
        return describe_blocks(component.part)
