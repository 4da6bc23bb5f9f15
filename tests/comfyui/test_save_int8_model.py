"""Save int8 Model: ComfyUI's own loader reads the file and gives the same image, bit for bit."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import torch
from comfy_host import checkpoints
from safetensors import safe_open

CHOSEN = "attn, ff"


@pytest.fixture(scope="module")
def loaded(studio, sd15_checkpoint):
    """A MODEL from a file, by ComfyUI's own loader."""
    import comfy.sd

    with torch.inference_mode():
        return comfy.sd.load_checkpoint_guess_config(str(sd15_checkpoint), output_vae=False, output_clip=False)[0]


@pytest.fixture(scope="module")
def converted(studio, loaded):
    return studio.run("PacelineQuantizeInt8", model=loaded, include=CHOSEN)


@pytest.fixture
def save(studio, output_folder):
    def run(model, prefix="diffusion_models/int8"):
        with torch.inference_mode():  # as ComfyUI runs all nodes
            shown = (
                studio.nodes["PacelineSaveInt8Model"]
                .execute(model=model, filename_prefix=prefix, strict=True)
                .ui["text"][0]
            )
        return output_folder / re.match(r"(.*\.safetensors) \(\d+\.\d MB\)", shown)[1]

    return run


@pytest.fixture
def sample(studio):
    def run(model):
        generator = torch.Generator().manual_seed(1)
        positive, negative = ([[torch.randn(1, 77, 768, generator=generator), {}]] for _ in range(2))
        return studio.sample(model, positive=positive, negative=negative)

    return run


def core_load(path):
    import comfy.sd

    with torch.inference_mode():
        return comfy.sd.load_diffusion_model(str(path))  # what UNETLoader calls


def is_int8(module):
    return hasattr(getattr(module, "weight", None), "_qdata")


def header(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_slice(key).get_dtype() for key in file.keys()}, file.metadata()  # noqa: SIM118


def lora(studio, model, lora_file, strength):
    import comfy.sd
    import comfy.utils

    tensors = comfy.utils.load_torch_file(str(lora_file), safe_load=True)
    return comfy.sd.load_lora_for_models(model, None, tensors, strength, 0)[0]


def test_core_reads_what_we_saved_and_draws_the_same(studio, converted, save, sample, sd15_checkpoint):
    expected = sample(converted)
    path = save(converted)
    again = core_load(path)
    layers = [module for module in again.model.diffusion_model.modules() if is_int8(module)]
    assert len(layers) == 70 and {type(layer).__module__ for layer in layers} == {"comfy.ops"}
    assert torch.equal(sample(again), expected)
    assert torch.equal(sample(converted), expected)
    keys, metadata = header(path)
    assert sum(key.endswith(".comfy_quant") for key in keys) == 70
    assert sum(kind == "I8" for kind in keys.values()) == 70
    assert not any(key.startswith(("first_stage_model", "cond_stage_model")) for key in keys)
    told = json.loads(metadata["paceline"])
    digest = hashlib.sha256(sd15_checkpoint.read_bytes()).hexdigest()
    assert told["source"] == {"file": sd15_checkpoint.name, "sha256": digest}
    assert told["settings"]["include"] == CHOSEN and told["layers"] == {"int8": 70, "all": 80}
    assert told["loras"] is False and told["comfyui"] and told["torch"] == torch.__version__
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no temporary file


def test_our_node_takes_the_file_and_keeps_its_bits(studio, converted, save, sample):
    again = core_load(save(converted))
    taken = studio.run("PacelineQuantizeInt8", model=again)
    assert torch.equal(sample(taken), sample(converted))
    assert "the file's own int8 layers; kernel: " in studio.report(taken)
    assert "active in 70 linear layers" in studio.report(taken)


def test_loras_are_in_the_file(studio, loaded, converted, lora_file, save, sample):
    patched = lora(studio, converted, lora_file, 0.8)
    expected = sample(patched)
    assert not torch.equal(expected, sample(converted))
    path = save(patched)
    assert torch.equal(sample(core_load(path)), expected)
    assert json.loads(header(path)[1]["paceline"])["loras"] is True


def test_a_weight_only_file_says_how_core_computes_it(studio, loaded, save, sample):
    """ComfyUI computes every int8 layer in int8, so the image is near, not the same; the file and the node say so."""
    model = studio.run("PacelineQuantizeInt8", model=loaded, mode="weight_only")
    path = save(model)
    expected = sample(model)
    found = sample(core_load(path))
    assert 0 < ((found - expected).norm() / expected.norm()).item() < 0.05
    assert "int8" in json.loads(header(path)[1]["paceline"])["note"]


def test_what_cannot_be_saved_is_refused(studio, loaded, converted, save, output_folder, monkeypatch):
    import shutil

    with pytest.raises(Exception, match="no layers in int8, so there is nothing to save. Put Quantize int8 before"):
        save(loaded)
    usage = shutil.disk_usage(output_folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    with pytest.raises(Exception, match=r"needs \d+ MB, but .* has only 1 MB left. Free some space"):
        save(converted)
    assert not list(output_folder.rglob("*.*"))


def test_velocity_prediction_is_in_the_file(studio, save):
    """What a network predicts is not in its weights: ComfyUI's loaders know it by empty tensors."""
    import comfy.model_base
    import comfy.model_sampling

    model = checkpoints.tiny_sd15(width=32, context=48)
    base = model.model
    base.model_type = comfy.model_base.ModelType.V_PREDICTION
    base.model_sampling = comfy.model_base.model_sampling(base.model_config, base.model_type)
    keys, metadata = header(save(studio.run("PacelineQuantizeInt8", model=model, include=CHOSEN)))
    assert "v_pred" in keys and metadata["modelspec.predict_key"] == "v"
