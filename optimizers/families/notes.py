"""Sentences that several records of families share."""

from __future__ import annotations

EVERY_FRAME = "rows and columns of each frame are thinned out, every frame stays"
SELF_ATTENTION = "self-attention; attention to the text is left alone"
