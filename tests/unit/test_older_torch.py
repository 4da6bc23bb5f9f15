"""Stable Diffusion WebUI brings torch 2.1, Forge 2.3: what they lack is taken away here from a newer one."""

import subprocess
import sys

from comfy_host.paths import ROOT

PROGRAM = """
import sys, types
import torch

sys.modules["torch.nn.attention"] = None
del torch.compiler.is_compiling, torch.OutOfMemoryError
newer = torch.nn.functional.scaled_dot_product_attention


def older(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    return newer(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)


torch.nn.functional.scaled_dot_product_attention = older

package = types.ModuleType("paceline")
package.__path__ = [sys.argv[1]]
sys.modules["paceline"] = package
from paceline.optimizers.core.devices import is_out_of_memory
from paceline.optimizers.attention.registry import get, probe_backend
from paceline.optimizers.in_webui import accelerate
from paceline.measure.measure import measure

cpu = torch.device("cpu")
assert probe_backend(get("sdpa"), cpu, torch.float32, 64).function
forced = probe_backend(get("sdpa_flash"), cpu, torch.float32, 64)
assert forced.function is None and forced.reason, forced
assert is_out_of_memory(RuntimeError("out of memory")) and not is_out_of_memory(RuntimeError("other"))
"""


def test_the_extension_works_with_the_torch_that_the_hosts_bring():
    run = subprocess.run([sys.executable, "-c", PROGRAM, str(ROOT)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
