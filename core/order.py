"""The canonical order of techniques: one for all hosts, so that the order of nodes or arguments does not matter.

The order is that in which the techniques would be applied by hand: first what changes numbers, then what changes how
the network computes with them, and last what compiles the result.
"""

from __future__ import annotations

PRECISION = "precision"
QKV_FUSION = "qkv_fusion"
INT8 = "int8"
ATTENTION = "attention"
TOKEN_MERGING = "token_merging"
COMPILATION = "compilation"

KINDS = (PRECISION, QKV_FUSION, INT8, ATTENTION, TOKEN_MERGING, COMPILATION)
"""Every kind of technique, innermost first. A target carries at most one technique of a kind."""
