"""Families of models: a record of facts for each, and the lookup from a network or an attention layer."""

from .known import families, family_names, find_family, find_layer

__all__ = ["families", "find_family", "find_layer", "family_names"]
