"""Optional packages: missing, broken, and stand-ins that hold a caller to the real package's contract.

A stand-in is a package on disk whose function checks what upstream checks and computes with plain torch on the CPU; the
real kernels need a GPU, where test_attention_numbers.py runs them.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types

import pytest
import torch
from paceline.optimizers.attention import packages, registry
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.attention.registry import BACKENDS, probe_backend
from paceline.optimizers.attention.torch_attention import vanilla

LOADERS = (packages.load_sage, packages.load_xformers, packages.load_flash)
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


@pytest.mark.parametrize("shape", [(9, 13), (2, 1, 9, 13), (2, 4, 9, 13), (1, 1, 1, 13), (2, 1, 1, 13), None])
@pytest.mark.parametrize("kind", ["bool", "float32", "float16"])
def test_xformers_layout_bias_scale_and_groups(package, shape, kind):
    package("xformers", "")
    package("xformers.ops", XFORMERS)
    backend = on_cpu("xformers")
    assert probe_backend(backend, "cpu", torch.float32).function
    q, k, v = tensors(heads=(4, 2), dtype=torch.float16 if kind == "float16" else torch.float32)
    mask = None
    if shape is not None:
        mask = torch.rand(shape) > 0.4 if kind == "bool" else torch.randn(shape)
    out = backend.load()(Inputs(q, k, v, mask=mask, scale=0.3, enable_gqa=True))
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if kind == "float16" else {}
    torch.testing.assert_close(out, vanilla(Inputs(q, k, v, mask=mask, scale=0.3, enable_gqa=True)), **tolerance)


FLASH = """
import torch.nn.functional as F
def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    assert q.stride(-1) == 1 and not causal
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, scale=softmax_scale, enable_gqa=True).transpose(1, 2)
    return {result}
"""


@pytest.mark.parametrize(
    ("name", "module", "result"),
    [
        ("flash", "flash_attn", "out"),
        ("flash3", "flash_attn_interface", "out"),
        ("flash3", "flash_attn_interface", "(out, None)"),
    ],
)
def test_flash_layout_scale_and_groups(package, name, module, result):
    package(module, FLASH.format(result=result))
    assert probe_backend(on_cpu(name), "cpu", torch.float32).function
    function, (q, k, v) = BACKENDS[name].load(), tensors(heads=(4, 2))
    out = function(Inputs(q, k, v, scale=0.3, enable_gqa=True))
    torch.testing.assert_close(out, vanilla(Inputs(q, k, v, scale=0.3, enable_gqa=True)))
    with pytest.raises(ValueError, match="enable_gqa"):
        function(Inputs(q, k, v))  # the kernel would group them without being asked
    with pytest.raises(ValueError, match="mask"):
        function(Inputs(q, q, q, mask=torch.ones(9, 9, dtype=torch.bool)))


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


@pytest.mark.parametrize("source", [SAGE_1, SAGE_2], ids=["1.x", "2.x"])
@pytest.mark.parametrize("head_dim", [40, 64, 72, 96, 128])
def test_sage_pads_scales_and_leaves_its_inputs_alone(package, source, head_dim):
    package("sageattention", source)
    function, (q, k, v) = BACKENDS["sage"].load(), tensors(heads=(4, 2), head_dim=head_dim)
    v = v.transpose(2, 3).contiguous().transpose(2, 3)  # last dimension not dense
    copies = [t.clone() for t in (q, k, v)]
    for scale in (None, 0.3):
        out = function(Inputs(q, k, v, scale=scale, enable_gqa=True))
        torch.testing.assert_close(out, vanilla(Inputs(q, k, v, scale=scale, enable_gqa=True)))
    assert all(torch.equal(t, copy) for t, copy in zip((q, k, v), copies, strict=True))
    with pytest.raises(ValueError, match="mask"):
        function(Inputs(q, q, q, mask=torch.ones(9, 9, dtype=torch.bool)))
    with pytest.raises(ValueError, match="enable_gqa"):
        function(Inputs(q, k, v))


@pytest.fixture
def kitchen(monkeypatch):
    """Return a function that gives the installed package, or one by its name, an int8 attention, or takes it away."""
    import_name = "comfy_kitchen"
    package = sys.modules.get(import_name) or types.ModuleType(import_name)
    monkeypatch.setitem(sys.modules, import_name, package)
    monkeypatch.setattr(registry, "_found", {})
    packages.load_kitchen.cache_clear()

    def put(function):
        monkeypatch.delattr(package, "int8_attention", raising=False)
        if function is not None:
            monkeypatch.setattr(package, "int8_attention", function, raising=False)

    yield put
    packages.load_kitchen.cache_clear()


def int8_attention(q, k, v, *, scale=None, attn_mask=None):
    # the checks of comfy-kitchen 0.2.40, _validate_inputs in sage_attention.py, but for the device
    assert q.ndim == k.ndim == v.ndim == 4 and q.dtype == k.dtype == v.dtype
    assert q.shape[1] % k.shape[1] == 0 and v.shape == k.shape and 0 < q.shape[3] <= 256
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    if attn_mask is not None:
        assert attn_mask.dtype in (torch.bool, torch.float16, torch.bfloat16, torch.float32)
        attn_mask = torch.broadcast_to(attn_mask, (*q.shape[:3], k.shape[2]))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale)


def test_an_older_kitchen_says_that_comfyui_has_to_be_updated(kitchen):
    kitchen(None)
    found = probe_backend(on_cpu("kitchen"), "cpu", torch.float32)
    assert "cannot import name 'int8_attention'" in found.reason
    assert "update ComfyUI to 0.33 or newer" in found.remedy
    assert "pip" not in found.remedy and "torch" not in found.remedy  # another kitchen could break this ComfyUI


@pytest.mark.parametrize("shape", [(9, 13), (2, 1, 9, 13), (2, 1, 1, 13), None])
@pytest.mark.parametrize("head_dim", [40, 64, 256])
def test_kitchens_layout_masks_scale_and_groups(kitchen, shape, head_dim):
    kitchen(int8_attention)
    assert probe_backend(on_cpu("kitchen"), "cpu", torch.float32, head_dim).function
    function, (q, k, v) = BACKENDS["kitchen"].load(), tensors(heads=(4, 2), head_dim=head_dim)
    v = v.transpose(2, 3).contiguous().transpose(2, 3)  # last dimension not dense
    mask = None if shape is None else torch.rand(shape) > 0.3
    out = function(Inputs(q, k, v, mask=mask, scale=0.3, enable_gqa=True))
    torch.testing.assert_close(out, vanilla(Inputs(q, k, v, mask=mask, scale=0.3, enable_gqa=True)))
    with pytest.raises(ValueError, match="enable_gqa"):
        function(Inputs(q, k, v))
