"""The life of int8 models in ComfyUI: clones, LoRA, partial loading, memory, beside other nodes, and as a file."""

import gc
import re
import shutil
import weakref

import pytest
import torch
from comfy_host import checkpoints
from compiled_models import dynamic
from distances import relative
from int8_models import int8_layers, one_call, with_lora
from safetensors import safe_open
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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
            done = studio.nodes["PacelineSaveInt8Model"].execute(model=model, filename_prefix=prefix, strict=True)
        run.shown = done.ui["text"][0]
        return output_folder / re.match(r"(.*\.safetensors) \(\d+\.\d MB\)", run.shown)[1]

    return run


@pytest.fixture
def sample(studio):
    def run(model):
        generator = torch.Generator().manual_seed(1)
        positive, negative = ([[torch.randn(1, 77, 768, generator=generator), {}]] for _ in range(2))
        return studio.sample(model, (8, 8), steps=1, positive=positive, negative=negative)

    return run


def core_load(path):
    import comfy.sd

    with torch.inference_mode():
        return comfy.sd.load_diffusion_model(str(path))  # what UNETLoader calls


def header(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_slice(key).get_dtype() for key in file.keys()}, file.metadata()  # noqa: SIM118


def lora(studio, model, lora_file, strength):
    import comfy.sd
    import comfy.utils

    tensors = comfy.utils.load_torch_file(str(lora_file), safe_load=True)
    return comfy.sd.load_lora_for_models(model, None, tensors, strength, 0)[0]


def test_core_reads_what_we_saved_and_draws_the_same(studio, converted, save, sample):
    expected = sample(converted)
    path = save(converted)
    again = core_load(path)
    layers = int8_layers(again).values()
    assert len(layers) == 70 and {type(layer).__module__ for layer in layers} == {"comfy.ops"}
    assert torch.equal(sample(again), expected)
    assert torch.equal(sample(converted), expected)
    keys, _ = header(path)
    assert sum(key.endswith(".comfy_quant") for key in keys) == 70
    assert sum(kind == "I8" for kind in keys.values()) == 70
    assert not any(key.startswith(("first_stage_model", "cond_stage_model")) for key in keys)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no temporary file


def test_loras_are_in_the_file(studio, loaded, converted, lora_file, save, sample):
    patched = lora(studio, converted, lora_file, 0.8)
    expected = sample(patched)
    assert not torch.equal(expected, sample(converted))
    assert torch.equal(sample(core_load(save(patched))), expected)


def test_a_weight_only_file_says_how_core_computes_it(studio, loaded, save, sample):
    """ComfyUI computes every int8 layer in int8, so the image is near, not the same; the node says so."""
    model = studio.run("PacelineQuantizeInt8", model=loaded, mode="weight_only")
    path, expected = save(model), sample(model)
    assert 0 < relative(sample(core_load(path)), expected) < 0.05
    assert "The image will differ a little: ComfyUI computes" in save.shown


def test_what_cannot_be_saved_is_refused(studio, loaded, converted, save, output_folder, monkeypatch):
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


def test_the_original_is_let_go_when_only_the_int8_model_is_held(studio, quantize):
    import comfy.model_management

    model = checkpoints.tiny_sd15(width=32, context=48, seed=4)
    model.cached_patcher_init = (lambda seed: checkpoints.tiny_sd15(width=32, context=48, seed=seed), (4,))
    converted = quantize(model)
    expected = studio.sample(model)
    network = weakref.ref(model.model)
    comfy.model_management.unload_all_models()
    del model
    gc.collect()
    assert network() is None
    # Going back loads the file again, as a loader would.
    removed = studio.run("PacelineRemoveOptimizations", model=converted)
    assert torch.equal(studio.sample(removed), expected)


def test_a_copy_that_compile_unet_had_taken_off_dynamic_vram_is_loaded_without_it_again(studio, quantize):
    """Its loader leaves a file's tensors in the file's dtype, which only dynamic VRAM casts."""
    import comfy.model_management

    loaded = []

    def load(disable_dynamic=False):
        plain = checkpoints.tiny_sd15(width=32, context=48, seed=4)
        model = plain if disable_dynamic else dynamic(plain)
        model.cached_patcher_init = (load, ())
        loaded.append(disable_dynamic)
        return model

    model = load()
    converted = quantize(studio.run("PacelineCompileUNet", model=model, backend="eager"))
    comfy.model_management.unload_all_models()
    gc.collect()  # as without ComfyUI's cache, only the last MODEL is held
    studio.run("PacelineModelPrecision", model=converted, dtype="bf16")
    asked_for_dynamic, *rest = loaded[2:]  # after the file and the copy of Compile UNet
    assert not asked_for_dynamic and rest and all(rest)


def test_lora_before_and_after_is_as_near_as_without(studio, baseline, quantize):
    strength = 0.5
    converted = quantize(studio.model)
    floor = relative(studio.sample(converted), baseline)
    expected = studio.sample(with_lora(studio.model, strength))
    assert relative(expected, baseline) > 3 * floor  # it does something that int8 could lose
    before, after = quantize(with_lora(studio.model, strength)), with_lora(converted, strength)
    first, second = studio.sample(before), studio.sample(after)
    assert torch.equal(first, second)
    assert relative(first, expected) < 1.5 * floor
    assert "fallback" not in studio.report(before)
    assert torch.equal(studio.sample(converted), studio.sample(quantize(studio.model)))  # and it is gone afterwards


def test_a_model_that_did_not_fit_computes_its_lora_in_full_precision(studio, quantize):
    """Partial loading: what did not fit has its LoRA added at each use; the rest is requantised."""
    converted = with_lora(quantize(studio.model), 1.0)
    studio.sample(converted, steps=1)
    whole = one_call(converted)
    fits = converted.model_size() // 2
    converted.detach()
    with torch.inference_mode():
        converted.patch_model(device_to=converted.load_device, lowvram_model_memory=fits)
    waiting = [layer for layer in int8_layers(converted).values() if layer.weight_function]
    assert 0 < len(waiting) < 70
    assert relative(one_call(converted), whole) < 0.02
    converted.detach()
    studio.sample(converted, steps=1)
    assert torch.equal(one_call(converted), whole)


class Allocated(TorchDispatchMode):
    """The most memory that was in use at once of what is made in it."""

    def __init__(self):
        super().__init__()
        self.most, self.made = 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for storage in (one.untyped_storage() for one in tree_leaves(result) if isinstance(one, torch.Tensor)):
            if storage._cdata not in given:  # else a view of what was there
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.made = {key: (one, size) for key, (one, size) in self.made.items() if not one.expired()}
        self.most = max(self.most, sum(size for _, size in self.made.values()))
        return result


def test_quantising_needs_little_memory_beside_the_model(quantize):
    """The new weights, and while one layer is looked at, some float32 copies of it and of no other."""
    model = checkpoints.tiny_sd15(width=64, context=48, dtype=torch.float16)
    layers = {name: m.weight for name, m in model.model.diffusion_model.named_modules() if hasattr(m, "weight")}
    with Allocated() as seen:
        converted = quantize(model, mode="weight_only")
    chosen = {name: layers[name] for name in int8_layers(converted)}
    new = sum(layer.weight._qdata.nbytes for layer in int8_layers(converted).values())
    assert new == sum(weight.nbytes for weight in chosen.values()) / 2
    assert seen.most < new + 6 * max(4 * weight.numel() for weight in chosen.values())


def test_fuse_qkv_leaves_int8_layers_alone(studio, quantize):
    model = quantize(studio.model)
    fused = studio.run("PacelineFuseQKV", model=model)
    assert torch.equal(studio.sample(fused), studio.sample(model))
    report = studio.report(fused)
    assert "fallback: its weights are of the class QuantizedTensor" in report
    alone, together = (one.get_attachment("paceline").find("int8").last_summary().counts for one in (model, fused))
    assert together == alone


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_in_one_graph_with_the_same_bits_by_a_node_before_or_after(small, quantize):
    from comfy_api.torch_helpers import set_torch_compile_wrapper
    from torch._dynamo.utils import counters

    expected = small.sample(quantize(small.model))
    for first in (False, True):
        torch._dynamo.reset()
        counters.clear()
        model = (small.model if first else quantize(small.model)).clone()
        set_torch_compile_wrapper(model=model, backend="eager", fullgraph=True)
        assert torch.equal(small.sample(quantize(model) if first else model), expected)
        assert counters["stats"]["unique_graphs"] == 1
