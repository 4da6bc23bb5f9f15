"""Compile UNet on a GPU: nothing waits for it inside of a step. In a process of its own, because ComfyUI chooses its
device once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from comfy_host.paths import ROOT

COMMON = f"""
import sys
sys.path[:0] = [{str(ROOT / "tools")!r}]
from comfy_host import checkpoints, in_process, pack
in_process.bootstrap(cpu=False)
import torch
node = pack.load_nodes()["PacelineCompileUNet"]
model = checkpoints.tiny_sd15(width=64, context=96, dtype=torch.float16)
model.load_device = torch.device("cuda")
prompt = in_process.random_conditioning(model)
def sample(patcher):
    return in_process.sample(patcher, prompt, prompt, torch.zeros(1, 4, 32, 24), steps=4, seed=7)
expected = sample(model)
"""

# A wrapper inside of ours is around the network alone: what it waits for would be our doing.
NO_WAITING = """
import comfy.patcher_extension as extension
def strict(executor, *args, **kwargs):
    torch.cuda.set_sync_debug_mode("error" if armed else "default")
    try:
        return executor(*args, **kwargs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
compiled = node.execute(model=model, backend="inductor", mode="default").result[0]
compiled.add_wrapper_with_key(extension.WrappersMP.DIFFUSION_MODEL, "strict", strict)
armed = False
sample(compiled)
armed = True
found = sample(compiled)
torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
print("passed")
"""


@pytest.mark.gpu
def test_nothing_waits_for_the_gpu_inside_of_a_step():
    done = subprocess.run([sys.executable, "-c", COMMON + NO_WAITING], capture_output=True, text=True)
    assert "passed" in done.stdout, done.stdout + done.stderr
