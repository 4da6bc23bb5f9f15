"""Tokens to match, and what a matching says in the terms of tokens and slots."""

from __future__ import annotations

import torch
from paceline.optimizers.token_merging.grid import positions
from paceline.optimizers.token_merging.merging import Matching
from torch import Tensor


def random_tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def slot_of_token(matching: Matching) -> Tensor:
    """Return the slot that holds each token, ``[batch, tokens]``."""
    batch, slots = matching.starts.shape
    return matching.row_of_token - torch.arange(batch, device=matching.starts.device)[:, None] * slots


def token_of_slot(matching: Matching) -> Tensor:
    """Return the token that each slot stands for, ``[batch, slots]``, ascending."""
    return positions(_is_kept(matching), matching.starts.shape[1])


def merged_tokens(matching: Matching) -> Tensor:
    """Return the tokens that were merged away, ``[batch, merged]``, ascending."""
    return positions(~_is_kept(matching), matching.merged)


def _is_kept(matching: Matching) -> Tensor:
    return matching.kept_as == torch.arange(matching.kept_as.shape[1], device=matching.kept_as.device)
