"""Sentences that several records of families share."""

from __future__ import annotations

EVERY_FRAME = "rows and columns of each frame are thinned out, every frame stays"
SELF_ATTENTION = "self-attention; attention to the text is left alone"
NEWER = "read in ComfyUI 0.38 and not run by the tests of ComfyUI 0.30, which does not have it"
