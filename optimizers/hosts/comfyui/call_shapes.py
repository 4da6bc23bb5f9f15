"""Sizes of all tensors that a MODEL's network is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def shapes_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return sizes of the arguments of ``BaseModel.apply_model`` by name, see ``ModelCall.shapes``."""
    named = [*zip(("x", "t", "c_concat", "c_crossattn"), args, strict=False), *kwargs.items()]
    shapes = {place: size for name, value in named for place, size in _sizes(name, value)}
    streams = kwargs.get("latent_shapes") or ()
    if len(streams) > 1:  # packed; the network gets them one by one
        for index, stream in enumerate(streams):
            shapes[f"x[{index}]" if index else "x"] = (args[0].shape[0], *stream[1:])
    return shapes


def _sizes(name: str, value: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    if hasattr(value, "shape"):
        yield name, tuple(value.shape)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _sizes(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _sizes(f"{name}.{key}", item)
