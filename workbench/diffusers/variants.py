"""What is compared: named sets of settings, and the rows of the recipe that the diffusers documentation made known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import InvalidSetting
from ...optimizers.hosts.diffusers.attention import Attention
from ...optimizers.hosts.diffusers.compilation import Compile
from ...optimizers.hosts.diffusers.settings import FuseQKV, Precision, QuantizeInt8, ScheduleOnCPU, TokenMerging


@dataclass(frozen=True)
class Variant:
    """One way to run a pipeline: its name in tables, and what ``optimize`` is given."""

    name: str
    settings: tuple[Any, ...]


def parts(compile_backend: str, compile_mode: str) -> Mapping[str, tuple[Any, ...]]:
    """Return the settings that a variant is made of, by the name that stands for them on the command line."""
    inductor = compile_backend == "inductor"
    compiled = Compile(
        backend=compile_backend,
        mode=compile_mode if inductor else "default",
        fullgraph=True,
        preset="diffusion-fast" if inductor else "none",
        channels_last=True,
        on_error="raise",
    )
    return {
        "plain": (),
        "vanilla": (Attention("vanilla"),),
        "sdpa": (Attention("sdpa"),),
        "xformers": (Attention("xformers"),),
        "tome": (TokenMerging(method="merge", ratio=0.5),),
        "tomesd": (TokenMerging(ratio=0.5, implementation="tomesd"),),
        "kv": (TokenMerging(ratio=0.75, method="kv_downsample"),),
        "bf16": (Precision("bf16"),),
        "fp16": (Precision("fp16"),),
        "schedule": (ScheduleOnCPU(),),
        "qkv": (FuseQKV(),),
        "int8": (QuantizeInt8(),),
        "torchao": (QuantizeInt8(implementation="torchao"),),
        "compile": (compiled,),
    }


def variants(text: str, compile_backend: str, compile_mode: str) -> tuple[Variant, ...]:
    """Return the variants of e.g. ``plain,tome,tome+xformers``; the first is the baseline.

    `InvalidSetting` for an unknown name.
    """
    known = parts(compile_backend, compile_mode)
    found = []
    for name in text.split(","):
        settings: list[Any] = []
        for part in name.strip().split("+"):
            if part not in known:
                raise InvalidSetting(
                    f"There is no variant {part!r}.",
                    f"Join these by + and separate variants by commas: {', '.join(known)}.",
                )
            settings += known[part]
        found.append(Variant(name.strip(), tuple(settings)))
    return tuple(found)


RECIPE = ("fp32", "bf16", "sdpa", "compile", "qkv", "int8")
"""Rows of https://huggingface.co/docs/diffusers/tutorials/fast_diffusion, each with all that come before it."""


def recipe(rows: tuple[str, ...], compile_backend: str, compile_mode: str) -> tuple[Variant, ...]:
    """Return the recipe's rows, each with what the chosen rows before it add, always ``fp32`` first.

    What ``rows`` leaves out is in no row. `InvalidSetting` for an unknown name.
    """
    require_rows(rows)
    known = parts(compile_backend, compile_mode)
    settings: dict[str, Any] = {"attention": Attention("vanilla")}
    found = [Variant("fp32, plain attention", tuple(settings.values()))]
    for name in RECIPE[1:]:
        if name in rows:
            settings["attention" if name == "sdpa" else name] = known[name][0]
            found.append(Variant(f"+ {name}", tuple(settings.values())))
    return tuple(found)


def require_rows(names: Sequence[str]) -> None:
    """Raise `InvalidSetting` for a name that no row of the recipe has."""
    for name in names:
        if name not in RECIPE:
            raise InvalidSetting(f"The recipe has no row {name!r}.", f"The recipe's rows are: {', '.join(RECIPE)}.")
