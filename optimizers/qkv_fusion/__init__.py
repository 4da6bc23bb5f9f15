"""Fused projections: query, key and value of an attention layer in one matrix multiplication instead of three."""

from .projections import SEPARATE, FusedProjections
from .rows import join_rows, refuse_rows

__all__ = ["SEPARATE", "FusedProjections", "join_rows", "refuse_rows"]
