"""Every technique on a GPU against the plain model there, in half precision; in processes of their own, because ComfyUI
chooses its device, and torch its allocator, once."""

import subprocess
import sys

import pytest
from comfy_host.paths import ROOT

COMMON = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
from comfy_host import checkpoints, in_process, pack, vaes
in_process.bootstrap(cpu=False)
import torch
nodes = pack.load_nodes()
on_gpu = torch.cuda.is_available()
dtype = torch.float16 if on_gpu else torch.float32
def run(node, **inputs):
    known = {{entry.id: entry.default for entry in nodes[node].define_schema().inputs if hasattr(entry, "default")}}
    known = {{name: value for name, value in known.items() if value is not None}}
    return nodes[node].execute(**known | inputs).result[0]
model = checkpoints.tiny_sd15(width=64, context=96, dtype=dtype)
prompt = in_process.random_conditioning(model)
def sample(patcher, steps=4, **more):
    return in_process.sample(patcher, prompt, prompt, torch.zeros(1, 4, 64, 48), steps=steps, seed=7, **more)
sample(model)  # on an H100 a process' first picture rounds differently (6e-4) from all later ones, which are alike
expected = sample(model)
def near(found, limit, reference=None):
    reference = expected if reference is None else reference
    difference = float((found - reference).norm() / reference.norm())
    assert torch.isfinite(found).all() and difference < limit, difference
"""

SCRIPTS = {
    "attention": """
from paceline.optimizers.attention.registry import BACKENDS
from paceline.optimizers.core.errors import PacelineError
tried = 0
for name in ("auto", *BACKENDS):
    try:
        changed = run("PacelineSetAttentionProcessor", model=model, backend=name)
    except PacelineError as error:
        print(name, error)
        continue
    if changed is model:
        print(name, "cannot be used here")
        continue
    near(sample(changed), 0.1 if name == "sage" else 0.03)
    tried += 1
assert tried >= 4
""",
    "our nodes": """
from our_nodes import ON, said
limits = {"merge": 2.0, "kv_downsample": 2.0, "fuse": 0.02, "int8": 0.2, "weight_only": 0.2, "precision": 0.1}
for name, limit in {**limits, "channels_last": 0.1}.items():
    node, settings = ON[name]
    changed = run(f"Paceline{node}", model=model, **settings)
    near(sample(changed), limit)
    assert name != "fuse" or not on_gpu or said(changed).state == "active", said(changed)  # slower on a processor
    near(sample(model), 1e-6)
if on_gpu:
    near(sample(run("PacelineModelPrecision", model=model, fp16_accumulation=True)), 0.1)
""",
    "vae": """
vae = vaes.kl(width=64)
latent = torch.randn(1, 4, 16, 12, generator=torch.Generator().manual_seed(1))
plain = vae.decode(latent)
for settings in ({}, {"channels_last": True}):
    compiled = run("PacelineCompileVAE", vae=vae, **settings)
    near(compiled.decode(latent), 0.02, plain)
    near(compiled.decode(latent), 0.02, plain)
changed = run("PacelineVAEPrecision", vae=vae, dtype="bf16")
near(changed.decode(latent), 0.05, plain)
near(vae.decode(latent), 1e-6, plain)
""",
    # A wrapper inside of ours is around the network alone: what it waits for would be our doing.
    "no waiting inside of a compiled step": """
import comfy.patcher_extension as extension
def strict(executor, *args, **kwargs):
    torch.cuda.set_sync_debug_mode("error" if armed else "default")
    try:
        return executor(*args, **kwargs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
compiled = run("PacelineCompileUNet", model=model, backend="inductor", mode="default")
compiled.add_wrapper_with_key(extension.WrappersMP.DIFFUSION_MODEL, "strict", strict)
armed = False
sample(compiled)
armed = True
near(sample(compiled), 0.02)
""",
    "compare models": """
import folder_paths, tempfile
folder_paths.set_output_directory(tempfile.mkdtemp())
merged = run("PacelineApplyToMe", model=model, method="merge", ratio=0.5)
picture = {"positive": prompt, "negative": prompt, "latent_image": {"samples": torch.zeros(1, 4, 32, 32)}}
settings = {"steps": 2, "runs": 2, "seed": 1, "sampler_name": "euler", "scheduler": "normal"}
assert run("PacelineCompareModels", model_baseline=model, model_optimized=merged, **picture, **settings) is not None
""",
}


def check(script):
    code = f"{COMMON}{SCRIPTS[script]}print('passed')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "passed" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_on_a_gpu(script):
    check(script)


@pytest.mark.thorough
@pytest.mark.parametrize("script", ["attention", "our nodes", "compare models"])
def test_the_scripts_themselves_run_on_a_processor(script):
    """What nobody can run here must at least not fail for a typing mistake."""
    check(script)
