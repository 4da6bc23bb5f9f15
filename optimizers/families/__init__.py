"""Families of models: which one a network or an attention layer belongs to. No host is imported."""

from __future__ import annotations

from collections.abc import Callable

from .table import FAMILIES, AttentionLayer, Family


def families() -> tuple[Family, ...]:
    """Return all families."""
    return FAMILIES


def find_family(network: object) -> Family | None:
    """Return the family of a network, or None."""
    path = _path(network)

    def is_at(entry: str) -> bool:
        package, _, name = entry.rpartition(".")
        in_package = path.startswith(f"{package}.") and path.endswith(f".{name}")
        return path == entry or path.startswith(f"{entry}.") or in_package

    return next((family for family in FAMILIES if any(map(is_at, family.networks))), None)


def find_layer(module: object) -> AttentionLayer | None:
    """Return what is known of the class of an attention layer; None for everything else."""
    path = _path(module)
    return next((layer for family in FAMILIES for layer in family.attention if layer.layer == path), None)


def family_names(chosen: Callable[[Family], object]) -> str:
    """Return the names of the families for which ``chosen`` is true, as a list in one line."""
    return ", ".join(family.name for family in FAMILIES if chosen(family))


def _path(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
