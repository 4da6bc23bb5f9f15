"""What Apply ToMe decides for a block and says about a run, without a host: the sentences that all hosts show."""

from __future__ import annotations

import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.core.errors import InvalidSetting, UnsupportedModel
from paceline.optimizers.models.families import Block
from paceline.optimizers.token_merging.call import OTHER_OUTPUT, OTHER_TOKENS, TokenCall
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


def test_a_block_with_other_tokens_is_left_alone_and_counted():
    policy = unet()
    call = policy.call(TokenCall, Activity())
    assert call.reduction(BLOCKS[0], torch.zeros(1, 380, 4), (24, 16)) is None
    reduction = call.reduction(BLOCKS[0], torch.zeros(1, 384, 4), (24, 16))
    whole = torch.zeros(1, 384, 4)
    assert call.restored(BLOCKS[0], reduction, whole) is whole
    assert call.activity.fallbacks == {OTHER_TOKENS: 1, OTHER_OUTPUT: 1} and not call.activity.used
    assert call.restored(BLOCKS[0], reduction, whole[:, :192]).shape == whole.shape
    summary = policy.summarize(call.activity)
    assert summary.state == "partly" and summary.text == "active in 1 of 4 self-attention blocks; 2 fallbacks"
    assert f"1 x fallback: {OTHER_TOKENS}" in summary.details


def test_why_nothing_is_done(reads):
    auto = unet(method="auto", ratio=0.75)
    small = unet(method="kv_downsample", ratio=0.3)
    for policy, activity in (
        (unet(ratio=0.0), Activity(1)),
        (unet(merge_attn=False), Activity(1)),
        (auto, asked(auto, latent=(8, 8))[0]),
        (small, asked(small, latent=(4, 4))[0]),
    ):
        summary = policy.summarize(activity)
        assert summary.state == "inactive"
        reads(summary.headline, *summary.details)


def test_settings_that_reach_nothing_are_refused_by_name(reads):
    coarse = [block for block in BLOCKS if block.downsample == 2]
    for kind, refused in (
        (UnsupportedModel, lambda: unet(coarse, max_downsample=1)),
        (UnsupportedModel, lambda: unet([])),
        (InvalidSetting, lambda: asked(unet(sx=32))),
    ):
        reads.refused(kind, refused)


def test_a_block_too_small_for_a_kept_difference_stays_whole():
    """On a GPU, of which the meta device has the limits; reduced alone it would move the picture most."""
    policy, levels = unet(residual="auto", max_downsample=2, **THINNED), [float(level) for level in range(20, -1, -1)]
    for side, whole in ((48, False), (16, True)):
        call = policy.call(TokenCall, Activity(), 0, SamplingStep(levels, 0, 20.0), side)
        found = call.reduction(BLOCKS[0], torch.zeros(1, side * side, 4, device="meta"), (side, side))
        assert (found is None) is whole
        assert list(call.activity.skipped.values()) == (["256 tokens are too few to save time"] if whole else [])
