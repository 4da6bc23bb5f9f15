"""Compile a component as diffusers pipelines call it: a denoiser's forward, a VAE's decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ....core.activity import Activity, Summary
from ....core.errors import InvalidSetting, UnsupportedModel
from ....core.order import COMPILATION
from ...compilation import CompiledFunction, CompileSettings, inductor_options
from .components import CONTROLNET, DENOISER, VAE
from .host import Host, Technique
from .memory_layout import to_channels_last
from .patches import Patches


@dataclass(frozen=True)
class Compile(CompileSettings):
    """How to compile: the settings of the nodes Compile UNet, VAE and ControlNet, and one more.

    Attributes:
        channels_last: keep weights and images with their channels last in memory, as convolutions on GPUs like it.
        regional: compile the repeated blocks instead of the whole network (diffusers' ``compile_repeated_blocks``):
            a few times quicker to compile, a little slower to run. Denoisers that name their blocks only.

    Raises:
        InvalidSetting: as for ``CompileSettings``.
    """

    channels_last: bool = False
    regional: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        for name in ("channels_last", "regional"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidSetting(f"{name} is {getattr(self, name)!r}.", "It must be true or false.")


class ComponentCompilation(Technique):
    """Compile on one component.

    Raises:
        UnsupportedModel: on attaching, where the component cannot be compiled as asked.
    """

    kind = COMPILATION
    title = "Compile"
    roles = (DENOISER, CONTROLNET, VAE)

    def __init__(self, settings: CompileSettings) -> None:
        super().__init__(settings)
        self.function: CompiledFunction | None = None
        self._regions = 0
        self._text = ""

    def describe(self) -> str:
        """Return how and what is compiled."""
        return self._text

    def attach(self, host: Host, patches: Patches) -> None:
        """Let the host's entry run the compiled function. The first call compiles."""
        component, settings = host.component, self.settings
        if getattr(settings, "channels_last", False):
            to_channels_last(component.part, patches)
        if getattr(settings, "regional", False) and component.role != VAE:
            self._compile_regions(host, patches)
            self._text = f"{component.name}: {self._regions} blocks, {settings.describe()}"
            return
        self.function = CompiledFunction(host.inner, settings, name=f"{component.name}.{component.entry}")
        host.inner = self.function
        self._text = f"{component.name}.{component.entry}: {settings.describe()}"

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Nothing: the host runs the compiled function."""
        if self._regions:
            self.activity.use("regions")

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``1 graph, 0 graph breaks, compiled in 12.3 s; 30 compiled calls``."""
        if self.function is None:
            return Summary("active", f"{self._regions} blocks compiled by torch at their first call")
        state = self.function.state
        text = (
            f"{state.graphs} graph{'' if state.graphs == 1 else 's'}, {state.graph_breaks} graph breaks, compiled in "
            f"{state.seconds:.1f} s; {state.compiled_calls} compiled calls"
        )
        details = tuple(f"{count} x uncompiled: {reason}" for reason, count in state.eager_calls.items())
        if state.fallback:
            return Summary("inactive", f"not compiled: {state.fallback}. {state.remedy}", details=details)
        return Summary("partly" if details else "active", text, details=details)

    def _compile_regions(self, host: Host, patches: Patches) -> None:
        part, settings = host.component.part, self.settings
        if not getattr(part, "_repeated_blocks", None):
            raise UnsupportedModel(
                f"Compile: regional is on, but {host.component.class_name} does not name its repeated blocks.",
                "Switch regional off for this component, or leave it out with components=...",
            )
        if any(type(block).__name__ == "ToMeBlock" for block in part.modules()):
            raise UnsupportedModel(
                "Compile: regional finds blocks by the name of their class, and tomesd has changed that.",
                "Use our implementation of TokenMerging, or switch regional off.",
            )
        options: dict[str, Any] = {}
        if settings.backend == "inductor":
            options["options"] = inductor_options(settings)
        part.compile_repeated_blocks(
            backend=settings.backend, fullgraph=settings.fullgraph, dynamic=settings.dynamic_argument, **options
        )
        compiled = [block for block in part.modules() if type(block).__name__ in part._repeated_blocks]
        self._regions = len(compiled)
        patches.on_undo(lambda: _drop_compiled(compiled))


def _drop_compiled(blocks: list[torch.nn.Module]) -> None:
    for block in blocks:
        block.__dict__.pop("_compiled_call_impl", None)  # the class says None
