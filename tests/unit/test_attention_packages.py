"""Optional packages: missing, broken, and stand-ins that hold a caller to the real package's contract.

A stand-in is a package on disk whose function checks what upstream checks and computes with plain torch on the CPU; the
real kernels need a GPU, where test_attention_numbers.py runs them.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from itertools import product

import pytest
import torch
from paceline.optimizers.attention import packages, registry
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.attention.registry import BACKENDS, probe_backend
from paceline.optimizers.attention.torch_attention import vanilla

LOADERS = (packages.load_sage, packages.load_xformers, packages.load_flash, packages.load_kitchen)
OPTIONAL = ("xformers", "flash_attn", "flash_attn_interface", "sageattention")


def forget() -> None:
    registry._found.clear()
    for loader in LOADERS:
        loader.cache_clear()
    for name in [m for m in sys.modules if m.partition(".")[0] in OPTIONAL]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that puts a package of one file on the path; the path holds no other optional package."""
    for name in OPTIONAL:
        if importlib.util.find_spec(name) is not None:
            pytest.skip(f"the real {name} is installed here")
    forget()
    monkeypatch.setitem(sys.modules, "comfy_kitchen", None)  # ComfyUI's own comes back afterwards
    del sys.modules["comfy_kitchen"]
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, source: str) -> None:
        target = tmp_path.joinpath(*name.split("."))
        target.mkdir(parents=True, exist_ok=True)
        (target / "__init__.py").write_text(source)
        importlib.invalidate_caches()

    yield write
    monkeypatch.undo()
    forget()


def on_cpu(name: str):
    """Return a backend with its device and dtype limits lifted, so that loading is reached without a GPU."""
    limits = dataclasses.replace(BACKENDS[name].limits[0], devices=None, dtypes=None, min_compute_capability=None)
    return dataclasses.replace(BACKENDS[name], limits=(limits,))


def tensors(heads=(2, 2), head_dim=64, tokens=(9, 13), dtype=torch.float32):
    torch.manual_seed(0)
    sizes = ((heads[0], tokens[0]), (heads[1], tokens[1]), (heads[1], tokens[1]))
    return [torch.randn(2, h, n, head_dim).to(dtype) for h, n in sizes]


@pytest.mark.parametrize(
    ("name", "package_name"), [("xformers", "xformers"), ("flash", "flash-attn"), ("sage", "sageattention")]
)
def test_a_missing_package_gives_the_command_for_this_python(package, name, package_name):
    found = probe_backend(on_cpu(name), "cpu", torch.float32)
    assert found.reason == f"{package_name} is not installed"
    assert found.remedy.endswith(f" {package_name}") and "--no-deps" in found.remedy
    assert f"{sys.executable}" in found.remedy and "-m pip install" in found.remedy


def test_a_broken_package_gives_its_own_error_in_one_line_and_breaks_nothing_else(package):
    package("xformers", "raise OSError('libcudart.so.12:\\n  cannot open shared object file')")
    found = probe_backend(on_cpu("xformers"), "cpu", torch.float32)
    assert found.reason == (
        "xformers is installed but cannot be imported: OSError: libcudart.so.12: cannot open shared object file"
    )
    assert torch.__version__ in found.remedy and "\n" not in found.reason + found.remedy
    assert probe_backend(BACKENDS["sdpa_flash"], "cpu", torch.float32).function


XFORMERS = """
import torch, torch.nn.functional as F
def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None):
    # [batch, tokens, heads, head_dim]; the checks are those of xformers 0.0.35, ops/fmha/common.py and cutlass.py
    b, m, h, _ = query.shape
    assert key.shape[2] == value.shape[2] == h
    if attn_bias is not None:
        assert attn_bias.shape == (b, h, m, key.shape[1]) and attn_bias.dtype == query.dtype
        alignment = 128 // torch.finfo(attn_bias.dtype).bits
        assert all(attn_bias.stride(d) % alignment == 0 for d in range(3)) and attn_bias.stride(-1) <= 1
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_bias, scale=scale).transpose(1, 2)
"""


FLASH = """
import torch.nn.functional as F
def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    assert q.stride(-1) == 1 and not causal
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, scale=softmax_scale, enable_gqa=True).transpose(1, 2)
    return {result}
"""


SAGE_1 = """
import torch.nn.functional as F
def sageattn(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=None, smooth_k=True, **kwargs):
    assert q.size(-1) in [64, 96, 128], "headdim should be in [64, 96, 128]."
    assert q.stride(-1) == 1 and k.stride(-1) == 1 and v.stride(-1) == 1 and not kwargs
    assert not smooth_k, "the real one then subtracts the mean from the caller's k, in place"
    return F.scaled_dot_product_attention(q, k, v, scale=sm_scale, enable_gqa=True)
"""
SAGE_2 = """
import torch.nn.functional as F
def sageattn(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=None, return_lse=False, **kwargs):
    assert q.stride(-1) == 1 and k.stride(-1) == 1 and v.stride(-1) == 1
    assert not kwargs, f"silently ignored by the real one: {list(kwargs)}"
    return F.scaled_dot_product_attention(q, k, v, scale=sm_scale, enable_gqa=True)
"""


KITCHEN = """
import torch, torch.nn.functional as F
def int8_attention(q, k, v, *, scale=None, attn_mask=None):
    # the checks of comfy-kitchen 0.2.40, _validate_inputs in sage_attention.py, but for the device
    assert q.ndim == k.ndim == v.ndim == 4 and q.dtype == k.dtype == v.dtype
    assert q.shape[1] % k.shape[1] == 0 and v.shape == k.shape and 0 < q.shape[3] <= 256
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    if attn_mask is not None:
        assert attn_mask.dtype in (torch.bool, torch.float16, torch.bfloat16, torch.float32)
        attn_mask = torch.broadcast_to(attn_mask, (*q.shape[:3], k.shape[2]))
        attn_mask = attn_mask if attn_mask.dtype == torch.bool else attn_mask.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale, enable_gqa=True)
"""
UNMASKED, GROUPED = "takes no mask", "has to be asked to group heads"
PACKAGES = {
    "xformers": ("xformers", "xformers.ops", XFORMERS, (64,), ()),
    "flash": ("flash", "flash_attn", FLASH.format(result="out"), (64,), (UNMASKED, GROUPED)),
    "flash 3": ("flash3", "flash_attn_interface", FLASH.format(result="out"), (64,), (UNMASKED, GROUPED)),
    "flash 3, with sums": ("flash3", "flash_attn_interface", FLASH.format(result="(out, None)"), (64,), (UNMASKED,)),
    "sage 1": ("sage", "sageattention", SAGE_1, (40, 64, 72, 96, 128), (UNMASKED, GROUPED)),
    "sage 2": ("sage", "sageattention", SAGE_2, (40, 64, 72, 96, 128), (UNMASKED, GROUPED)),
    "kitchen": ("kitchen", "comfy_kitchen", KITCHEN, (40, 64, 256), (GROUPED,)),
}
MASKS = [None, *product(((9, 13), (2, 1, 9, 13), (2, 4, 9, 13), (1, 1, 1, 13)), (torch.bool, torch.float32))]


@pytest.mark.parametrize("name", PACKAGES)
def test_layout_masks_scale_and_groups_are_those_that_the_package_takes(package, name):
    backend, module, source, head_dims, limits = PACKAGES[name]
    if "." in module:
        package(module.partition(".")[0], "")
    package(module, source)
    assert probe_backend(on_cpu(backend), "cpu", torch.float32, head_dims[-1]).function
    function = BACKENDS[backend].load()
    for head_dim, mask, half in product(head_dims, MASKS[:1] if UNMASKED in limits else MASKS, (False, True)):
        dtype = torch.float16 if half else torch.float32
        q, k, v = tensors(heads=(4, 2), head_dim=head_dim, dtype=dtype)
        v = v.transpose(2, 3).contiguous().transpose(2, 3)  # last dimension not dense
        if mask is not None:
            mask = (torch.rand(mask[0]) > 0.4).to(mask[1]) if mask[1] == torch.bool else torch.randn(mask[0])
        copies = [one.clone() for one in (q, k, v)]
        for scale in (None, 0.3):
            given = Inputs(q, k, v, mask=mask, scale=scale, enable_gqa=True)
            tolerance = {"rtol": 1e-2, "atol": 1e-2} if half else {}
            torch.testing.assert_close(function(given), vanilla(given), **tolerance)
        assert all(torch.equal(one, copy) for one, copy in zip((q, k, v), copies, strict=True))
    if UNMASKED in limits:
        with pytest.raises(ValueError, match="mask"):
            function(Inputs(q, q, q, mask=torch.ones(9, 9, dtype=torch.bool)))
    if GROUPED in limits:
        with pytest.raises(ValueError, match="enable_gqa"):
            function(Inputs(q, k, v))  # the kernel would group them without being asked


def test_an_older_kitchen_says_that_comfyui_has_to_be_updated(package):
    package("comfy_kitchen", "")
    found = probe_backend(on_cpu("kitchen"), "cpu", torch.float32)
    assert "cannot import name 'int8_attention'" in found.reason
    assert "update ComfyUI to 0.33 or newer" in found.remedy
    assert "pip" not in found.remedy and "torch" not in found.remedy  # another kitchen could break this ComfyUI
