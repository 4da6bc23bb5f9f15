"""Techniques in pairs, int8 with a kernel of a GPU, and VAEs, under a GPU's rules on a CPU: see ``fake_cuda``."""

from __future__ import annotations

import pytest
import torch
from comfy_host import vaes
from paceline.optimizers.quantization.kernels import Kitchen, SafeKernel
from vae_calls import decoded, on_fake_cuda

from .test_fake_cuda import CUSTOM, TOME, call_of, is_active, made, step  # noqa: F401 - a fixture

NODES = {
    "sdpa": ("PacelineSetAttentionProcessor", {"backend": "sdpa"}),
    "vanilla": ("PacelineSetAttentionProcessor", {"backend": "vanilla"}),
    "kv_downsample": (TOME, {**CUSTOM, "method": "kv_downsample", "residual": "off"}),
    "merge": (TOME, {**CUSTOM, "method": "merge"}),
    "fuse": ("PacelineFuseQKV", {}),
    "int8": ("PacelineQuantizeInt8", {}),
    "bf16": ("PacelineModelPrecision", {"dtype": "bf16"}),
}
OFTEN = ["sd15", "flux"]


def apply(studio, model, title):
    """Run a node with its defaults and what is set above; it must not pass the model through."""
    node, inputs = NODES[title]
    schema = studio.nodes[node].define_schema()
    known = {entry.id: entry.default for entry in schema.inputs if getattr(entry, "default", None) is not None}
    return studio.run(node, **{**known, "strict": True, "model": model, **inputs})


@pytest.mark.parametrize("name", OFTEN)
def test_the_int8_kernel_of_a_gpu_does_not_wait_for_it(studio, call_of, name):  # noqa: F811
    kernel = Kitchen()
    call = call_of(name)
    plain, _ = step(made(name, torch.float16), call)
    model = apply(studio, made(name, torch.float16), "int8")
    technique = model.get_attachment("paceline").find("int8")
    assert isinstance(technique.policy.kernel, SafeKernel)
    technique.policy.kernel.kernel = kernel
    found, _ = step(model, call)
    assert (found.device, found.dtype, found.shape) == (plain.device, plain.dtype, plain.shape)
    assert technique.last_summary().state == "active" and not technique.policy.kernel.failure


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_vae_in_another_precision_does_not_wait_for_the_gpu(studio, dtype):
    vae = studio.run("PacelineVAEPrecision", vae=vaes.kl(), dtype=dtype, channels_last=True)
    wanted = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    with on_fake_cuda(vae) as network:
        picture = decoded(network, wanted)
        latent = network.encode(picture)
    assert (latent.dtype, latent.device.type) == (wanted, "cuda")
