"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    reduction = Merging.plan(x, BlockCall(height, width, ratio, settings, step, block))
    y = reduction.restore(attention(reduction.reduce(x)))
"""
