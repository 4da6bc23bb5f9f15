"""What nodes say before a run: read from real headers of files, and nothing where it is not known what a node gets."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from executing import node
from paceline.service.faster.kept_runs import KeptRun, KeptRuns
from paceline.service.faster.same_work import facts_here

Z_IMAGE = {
    "patch_size": 2, "in_channels": 16, "dim": 3840, "n_layers": 30, "cap_feat_dim": 2560, "n_heads": 30,
    "n_kv_heads": 30, "qk_norm": True, "axes_dims": [32, 48, 48], "axes_lens": [1536, 512, 512], "rope_theta": 256.0,
    "ffn_dim_multiplier": 8 / 3, "z_image_modulation": True, "time_scale": 1000.0,
}  # fmt: skip
"""Z-Image's network, in its own size: only the header of its file is written."""

INT8 = {"preset": "balanced", "mode": "int8", "include": "", "exclude": "", "device": "auto"}
OURS = {
    "tome": ("PacelineApplyToMe", {"preset": "quality", "max_downsample": "auto"}),
    "fuse": ("PacelineFuseQKV", {}),
    "int8": ("PacelineQuantizeInt8", INT8),
    "attention": ("PacelineSetAttentionProcessor", {"backend": "auto"}),
    "compile": ("PacelineCompileUNet", {"backend": "inductor"}),
    "reuse": ("PacelineReuseSteps", {"budget": 0.05}),
}


def write_header(path: Path, network: torch.nn.Module, format: str = "") -> None:
    """Write a safetensors file that ends where its weights would begin; with a layer in a ``format`` of ComfyUI's."""
    about = {
        f"model.diffusion_model.{name}": {"dtype": "BF16", "shape": [*weight.shape], "data_offsets": [0, 0]}
        for name, weight in network.state_dict().items()
    }
    described = json.dumps({"format": format}).encode() if format else b""
    if format:
        name = "model.diffusion_model.layers.1.attention.qkv.comfy_quant"
        about[name] = {"dtype": "U8", "shape": [len(described)], "data_offsets": [0, len(described)]}
    text = json.dumps(about).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + described)


@pytest.fixture
def said(comfyui: Any, tmp_path: Path, sd15_checkpoint: Path, monkeypatch: Any, user_folder: Path):
    """Returns what each of our nodes in a row behind a loader says, before it runs."""
    import comfy.ldm.lumina.model
    import comfy.ops
    import folder_paths
    from comfy_host.pack import load_nodes
    from paceline.service.before_run import before_payload

    network = comfy.ldm.lumina.model.NextDiT(**Z_IMAGE, device="meta", operations=comfy.ops.disable_weight_init)
    for name, format in (("z_image", ""), ("z_image_int8", "int8_tensorwise"), ("z_image_fp8", "float8_e4m3fn")):
        write_header(tmp_path / f"{name}.safetensors", network, format)
    (tmp_path / "broken.safetensors").write_text("no weights")
    folders = ([str(tmp_path), str(sd15_checkpoint.parent)], {".safetensors"})
    monkeypatch.setitem(folder_paths.folder_names_and_paths, "checkpoints", folders)

    def answer(file: str, between: str = "LoraLoaderModelOnly", steps: int = 8) -> dict[str, str]:
        prompt = {
            "loader": node("CheckpointLoaderSimple", ckpt_name=file),
            "between": node(between, model=["loader", 0], lora_name="a", strength_model=1.0),
        }
        before = "between"
        for id, (kind, inputs) in OURS.items():
            prompt[id] = node(kind, model=[before, 0], strict=False, **inputs)
            before = id
        latent = {"latent_image": ["empty", 0], "positive": ["text", 0], "negative": ["text", 0]}
        prompt["sampler"] = node("KSampler", model=[before, 0], steps=steps, **latent)
        found = before_payload({"prompt": prompt}, load_nodes())["nodes"]
        return {id: one["headline"] for id, one in found.items()}

    return answer


def test_nodes_say_from_the_header_of_the_models_file_what_they_cannot_do(reads, said, sd15_checkpoint):
    for found in (said("z_image.safetensors"), said(sd15_checkpoint.name, steps=3)):
        reads(*(f"{node}: {text}" for node, text in sorted(found.items())))


def test_what_is_not_known_is_not_said(said):
    assert said("broken.safetensors") == {}
    assert said("not there.safetensors") == {}
    assert said("z_image.safetensors", between="A loader of another pack") == {}


def test_what_compiling_took_here_is_said_of_the_same_kind_of_model(said, sd15_checkpoint, monkeypatch):
    from paceline.service import before_run as before

    kept = [
        KeptRun("work", "2026-01-01T00:00:00", {"compiling": seconds}, False, facts_here(), {"family": family})
        for seconds, family in ((41.0, "BaseModel"), (1000.0, "SDXL"), (12.0, "BaseModel"))
    ]
    monkeypatch.setattr(KeptRuns, "read", lambda _: kept)
    monkeypatch.setattr(before, "host_device", lambda: torch.device("cuda"))
    assert said(sd15_checkpoint.name)["compile"] == "compiling took up to 41 s here, once"
    assert "compile" not in said("z_image.safetensors")
    folder = SimpleNamespace(size=lambda: 1)  # what earlier runs have compiled is kept
    monkeypatch.setattr(before, "cache_folder", lambda: folder)
    assert said(sd15_checkpoint.name)["compile"] == "compiled before: 12 s"
    monkeypatch.setattr(before, "facts_here", lambda: facts_here() | {"torch": "another"})
    assert said(sd15_checkpoint.name)["compile"] == "compiling took up to 41 s here, once"


def test_int8_says_that_a_file_is_quantised_already(reads, said):
    for name in ("z_image_fp8.safetensors", "z_image_int8.safetensors"):
        reads(said(name)["int8"])
    assert "int8" not in said("z_image.safetensors")
