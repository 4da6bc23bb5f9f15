"""What VAEs are given in tests, and calls of them as ComfyUI makes them."""

from contextlib import contextmanager

import torch
from comfy_host import fake_cuda
from paceline.optimizers.in_comfyui.targets.method_proxy import NetworkCall, install, stack_on


def latent(height=8, width=12, batch=1, channels=4, frames=None):
    size = (batch, channels, height, width) if frames is None else (batch, channels, frames, height, width)
    return torch.randn(size, generator=torch.Generator().manual_seed(height * width))


def image(height=64, width=96, batch=1):
    return torch.rand(batch, height, width, 3, generator=torch.Generator().manual_seed(height * width))


def decode(vae, samples, **tiling):
    with torch.inference_mode():  # as ComfyUI runs its nodes
        return vae.decode_tiled(samples.clone(), **tiling) if tiling else vae.decode(samples.clone())


def encode(vae, pixels, **tiling):
    with torch.inference_mode():
        return vae.encode_tiled(pixels.clone(), **tiling) if tiling else vae.encode(pixels.clone())


@contextmanager
def on_fake_cuda(vae):
    """Give the network of a VAE with its techniques, as in a call, under a GPU's rules: see ``fake_cuda``."""
    mode = fake_cuda.fake_cuda()
    fake_cuda.move_network(vae.first_stage_model, mode)
    call = NetworkCall(vae.first_stage_model, vae.patcher, ("decode", "encode"))
    with call.cleanup:
        network = install(stack_on(vae), call)
        with torch.inference_mode(), mode:
            yield network


def decoded(network, dtype):
    """Return what a network from ``on_fake_cuda`` decodes, which must be a picture of its dtype on the GPU."""
    picture = network.decode(torch.zeros(2, 4, 8, 8, dtype=dtype, device="cuda"))
    assert (picture.dtype, picture.device.type, tuple(picture.shape)) == (dtype, "cuda", (2, 3, 64, 64))
    return picture
