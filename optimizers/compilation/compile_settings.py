"""What a user decides about compilation, and what torch.compile is told for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ..core.errors import InvalidSetting, not_allowed
from ..core.settings import Settings, choice, number

BACKENDS = ("inductor", "aot_eager", "eager")
"""What the nodes offer. ``inductor`` generates code; the other two only trace, to find out what goes wrong."""

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CUDAGRAPH_TREE_MODES = ("reduce-overhead", "max-autotune")
"""Modes in which torch records CUDA graphs ("trees")."""

# https://github.com/huggingface/diffusion-fast, which sets these globally. Here they go with each compilation.
_DIFFUSION_FAST = {
    "conv_1x1_as_mm": True,
    "coordinate_descent_tuning": True,
    "coordinate_descent_check_all_directions": True,
    "epilogue_fusion": False,
}


@dataclass(frozen=True)
class CompileSettings(Settings):
    """How to compile one function; `InvalidSetting` if a value is not allowed, or two do not go together.

    Attributes:
        backend: one of ``BACKENDS``, or any other that ``torch._dynamo`` knows by name.
        mode: what torch's mode of that name means.
        fullgraph: fail where the function cannot be traced as one graph, instead of running parts of it in Python.
        dynamic: ``auto`` compiles for the sizes it sees, and once more for any size when they change; ``true`` for any
            size at once; ``false`` anew for each size.
        preset: ``diffusion-fast`` adds the inductor options of that recipe.
        recompile_limit: how many variants of a function may be compiled; calls that need another one run uncompiled.
        strict: stop where compiling fails, instead of running the function uncompiled.
        channels_last: whether images are handed over with their channels last in memory.
    """

    backend: str = "inductor"
    mode: str = choice("default", MODES)
    fullgraph: bool = False
    dynamic: str = choice("auto", ("auto", "true", "false"))
    preset: str = choice("none", ("none", "diffusion-fast"))
    recompile_limit: int = number(32, 1, 1000)
    strict: bool = False
    channels_last: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.backend, str) or not self.backend:
            raise not_allowed("backend", self.backend, "It must be a name, e.g. inductor.")
        super().__post_init__()
        for name, value, plain in (("mode", self.mode, "default"), ("preset", self.preset, "none")):
            if self.backend != "inductor" and value != plain:
                raise InvalidSetting(
                    f"{name} {value} belongs to the backend inductor, but backend is {self.backend}.",
                    f"Choose backend inductor, or {name} {plain}.",
                )

    def describe(self) -> str:
        more = {
            f"preset {self.preset}": self.preset != "none",
            "fullgraph": self.fullgraph,
            f"dynamic {self.dynamic}": self.dynamic != "auto",
            "strict": self.strict,
            "channels last": self.channels_last,
        }
        return ", ".join([self.backend, f"mode {self.mode}", *(part for part, said in more.items() if said)])


@dataclass(frozen=True)
class NetworkSettings(CompileSettings):
    """How to compile a network.

    ``scope`` ``repeated_blocks`` compiles one block of each kind, for all of its repetitions; ``auto`` does so wherever
    blocks repeat.
    """

    scope: str = choice("auto", ("auto", "whole_model", "repeated_blocks"))


def cudagraph_trees_refusal() -> str | None:
    """Return why torch's CUDA graphs (modes reduce-overhead, max-autotune) cannot work here; None if they can."""
    import torch

    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        return (
            "torch's CUDA graphs do not work with the memory allocator cudaMallocAsync that ComfyUI chooses; start "
            "ComfyUI with --disable-cuda-malloc to use them"
        )
    return None


def uses_cudagraph_trees(settings: CompileSettings) -> bool:
    """Return whether torch's CUDA graphs run: asked for, and possible here."""
    return settings.mode in CUDAGRAPH_TREE_MODES and cudagraph_trees_refusal() is None


def inductor_options(settings: CompileSettings) -> dict[str, object]:
    """Return inductor's options: the mode spelled out, then the preset, as far as torch has them.

    torch.compile takes either a mode or options, and a guard filter is an option.
    """
    if settings.backend != "inductor":
        return {}
    import torch._inductor
    import torch._inductor.config

    options: dict[str, object] = dict(torch._inductor.list_mode_options(settings.mode))
    if sys.platform == "win32":  # a kernel's name has those of its operators, and Triton makes a file's name of it:
        options["triton.descriptive_names"] = False  # longer paths than Windows allows
    if not uses_cudagraph_trees(settings):
        options.pop("triton.cudagraphs", None)
    if settings.preset == "diffusion-fast":
        known = torch._inductor.config.get_config_copy()  # a preset must not fail because torch has removed an option
        options.update({name: value for name, value in _DIFFUSION_FAST.items() if name in known})
    return options
