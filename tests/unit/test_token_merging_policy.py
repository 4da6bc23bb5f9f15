"""What Apply ToMe decides for a block and says about a run, without a host: the sentences that all hosts show."""

from __future__ import annotations

import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.core.errors import UnsupportedModel
from paceline.optimizers.models.families import Block
from paceline.optimizers.token_merging.call import TokenCall
from paceline.optimizers.token_merging.kept import SamplingStep
from paceline.optimizers.token_merging.tome_policy import TokenMergingPolicy
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings

LATENT = (24, 16)
BLOCKS = [Block(f"input {number}.0", number, scale) for number, scale in enumerate((1, 1, 2, 2))]
THINNED = {"method": "kv_downsample", "ratio": 0.75}


def unet(blocks=BLOCKS, **settings):
    return TokenMergingPolicy("SD", blocks, TokenMergingSettings(**{"method": "merge", **settings}))


def asked(policy, latent=LATENT):
    """Ask for each eligible block once; return the counts and (tokens, kept) of each block."""
    call = policy.call(TokenCall, Activity(model_calls=1))
    for block in policy.blocks:
        size = block.size(latent)
        reduction = call.reduction(block, torch.randn(1, size[0] * size[1], 4), size)
        if reduction is not None:
            call.activity.use(block.name, reduction.tokens, reduction.kept)
    return call.activity, [call.activity.tokens.get(block.name) for block in policy.blocks]


def test_why_nothing_is_done(reads):
    auto = unet(method="auto", ratio=0.75)
    small = unet(method="kv_downsample", ratio=0.3)
    wide = unet(sx=32, max_downsample=2)  # no cell fits into the grid
    for policy, activity in (
        (unet(ratio=0.0), Activity(1)),
        (unet(merge_attn=False), Activity(1)),
        (auto, asked(auto, latent=(8, 8))[0]),
        (small, asked(small, latent=(4, 4))[0]),
        (wide, asked(wide)[0]),
    ):
        summary = policy.summarize(activity)
        assert summary.state == "inactive"
        reads(summary.headline, *summary.details)


def test_settings_that_reach_nothing_are_refused_by_name(reads):
    coarse = [block for block in BLOCKS if block.downsample == 2]
    for refused in (lambda: unet(coarse, max_downsample=1), lambda: unet([])):
        reads.refused(UnsupportedModel, refused)


def test_a_block_too_small_for_a_kept_difference_stays_whole():
    """On a GPU, of which the meta device has the limits; reduced alone it would move the picture most."""
    policy, levels = unet(residual="auto", max_downsample=2, **THINNED), [float(level) for level in range(20, -1, -1)]
    for side, whole in ((48, False), (16, True)):
        call = policy.call(TokenCall, Activity(), 0, SamplingStep(levels, 0, 20.0), side)
        found = call.reduction(BLOCKS[0], torch.zeros(1, side * side, 4, device="meta"), (side, side))
        assert (found is None) is whole
        assert list(call.activity.skipped.values()) == (["256 tokens are too few to save time"] if whole else [])
