"""Arguments and results as trees: tensors and plain values in nested tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

Tree = Any
"""Tensors and plain values in nested tuples, lists and dicts."""


def describe(tree: Tree, tensors: list[torch.Tensor]) -> Hashable:
    """Return what two trees must agree in for one recording, and collect the tensors in order."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return (tree.shape, tree.stride(), tree.dtype, tree.device)
    if isinstance(tree, dict):
        return ("dict", *tree, *[describe(value, tensors) for value in tree.values()])
    if isinstance(tree, (list, tuple)):
        return (type(tree).__name__, *[describe(value, tensors) for value in tree])
    return id(tree) if type(tree).__hash__ is None else tree


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Tree) -> Tree:
    """Return a copy of ``tree`` with ``function`` applied to its tensors, in the order of `describe`."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: map_tensors(function, value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(function, value) for value in tree)
    return tree
