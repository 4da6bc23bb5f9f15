"""A real ComfyUI for this repository's tests, demo and benchmarks, in this process or as a server of its own.

The folder ``tools`` must be on ``sys.path``; the repository's root must not be (ComfyUI owns the name ``nodes``).
"""
