"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604)."""
