"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    reduction = fewer_keys(height, width, ratio, x.device)
    y = attention(x, reduction.reduce(x))
"""
