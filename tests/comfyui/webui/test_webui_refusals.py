"""Where Reuse Steps steps aside in Stable Diffusion WebUI and Forge, and says why."""

import pytest
import torch
from webui_drawing import LOOSE, MERGE

pytestmark = pytest.mark.usefixtures("untouched")


def unipc(model, x, timesteps=None, extra_args=None, callback=None, disable=None, sigmas=None):
    import comfy.k_diffusion.sampling

    return comfy.k_diffusion.sampling.sample_euler(model, x, sigmas, extra_args, callback, disable)


def test_samplers_with_their_own_noise_levels_are_left_alone(host):
    plain, found = host.draw(sampler=unipc), host.draw(LOOSE | MERGE, sampler=unipc)
    assert not torch.equal(plain, found)  # Apply ToMe serves them
    why = "the sampler UniPC chooses its noise levels itself"
    assert host.lines[1] == f"Paceline Reuse Steps: nothing was reused: {why}"
    assert host.said[1].summary.details == (why,)
    assert torch.equal(host.draw(LOOSE, sampler=unipc), plain)


def test_another_extension_that_leaves_out_steps_goes_first(host, studio):
    network = studio.model.model.diffusion_model
    forward = network.forward

    def teacache_forward(*args, **options):
        return forward(*args, **options)

    network.forward = teacache_forward
    try:
        plain = host.draw()
        assert torch.equal(host.draw(LOOSE), plain)
        assert "another extension leaves out steps too" in host.lines[0]
    finally:
        del network.forward
