"""What the node Benchmark Sweep and the command line have in common."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidSetting
from ..optimizers.hosts.comfyui.model import require_model
from ..workbench.comfyui import comparison, sweeping
from ..workbench.presets import Recipe, Step
from ..workbench.sweep import Range, Space, parse_space, steps_of
from .recipes import apply_recipe, check_steps


def read_space(text: str) -> Space:
    """Read the settings to try, and check every single one, so that no cell fails for a typing mistake.

    Raises:
        InvalidSetting: naming the line, or what is not a node, an input or a value of it.
    """
    space = parse_space(text)
    for name, values in space.values.items():
        for value in (values.low, values.high) if isinstance(values, Range) else values:
            check_steps(steps_of({name: value}), "The grid")
    return space


def bench_for(
    model: Any, vae: Any, job: comparison.SamplingJob, settings: comparison.ComparisonSettings
) -> sweeping.Bench:
    """Return what measures cells, with our nodes to apply them."""
    require_model(model)

    def apply(steps: tuple[Step, ...]) -> sweeping.Applied:
        # Cells report nowhere by themselves: their activity is in the comparison.
        applied = apply_recipe(Recipe("this cell", steps), {"model": model, "vae": vae})
        objects = applied.objects
        return sweeping.Applied(objects["model"], objects.get("vae"), tuple(applied.left_out))

    return sweeping.Bench(model, vae, job, settings, apply)


def require_shared_storage(storage: str) -> None:
    """Check a storage that was given in a workflow.

    Raises:
        InvalidSetting: for a database file, which would let whoever can send a workflow write files anywhere.
    """
    if storage.strip().lower().startswith("sqlite"):
        raise InvalidSetting(
            "storage is a SQLite file.",
            "Leave it empty to use one in ComfyUI's user folder, or give the URL of a database server.",
        )
