"""What a run held is free when it is over, without waiting for Python to look for circles of references.

A circle would keep a model's weights on the GPU when the next model needs the room, and ComfyUI calls it a memory leak.
"""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch
from comfy_host import checkpoints, vaes

NODES = {
    "PacelineApplyToMe": {"preset": "custom", "method": "merge", "ratio": 0.5, "max_downsample": "auto"},
    "PacelineSetAttentionProcessor": {"backend": "vanilla"},
    "PacelineCompileUNet": {"backend": "eager"},
    "PacelineFuseQKV": {},
    "PacelineQuantizeInt8": {"include": "ff"},
    "PacelineModelPrecision": {"dtype": "bf16"},
}


@contextmanager
def no_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("node", NODES)
def test_a_model_is_free_when_nobody_holds_it(studio, node):
    model = checkpoints.tiny_sd15(width=32, context=48)
    chosen = studio.run(node, model=model, **NODES[node])
    studio.sample(chosen)
    networks = [weakref.ref(chosen.model), weakref.ref(model.model)]
    with no_collector():
        del chosen, model
        studio.sample(studio.model)
        assert [network() is None for network in networks] == [True, True]


def test_a_vae_is_free_when_nobody_holds_it(studio):
    vae = vaes.kl()
    chosen = studio.run(
        "PacelineCompileVAE", vae=vae, backend="eager", mode="default", compile_decoder=True, compile_encoder=False
    )
    chosen.decode(torch.zeros(1, 4, 8, 8))
    network = weakref.ref(vae.first_stage_model)
    with no_collector():
        del chosen, vae
        studio.sample(studio.model)
        assert network() is None
