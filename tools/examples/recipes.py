"""What each example workflow shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graph import Graph, Node, Output

PROMPT = "a red fox sitting in fresh snow, soft morning light, detailed fur, 85mm photograph"
NEGATIVE = "blurry, low quality, watermark"
GREEN, RED = ("#232", "#353"), ("#322", "#533")

_FACE = "https://huggingface.co"
FILES = {
    "v1-5-pruned-emaonly-fp16.safetensors": ("checkpoints", "Comfy-Org/stable-diffusion-v1-5-archive"),
    "sd_xl_base_1.0.safetensors": ("checkpoints", "stabilityai/stable-diffusion-xl-base-1.0"),
    "sd_xl_offset_example-lora_1.0.safetensors": ("loras", "stabilityai/stable-diffusion-xl-base-1.0"),
    "512-inpainting-ema.safetensors": ("checkpoints", "Comfy-Org/stable_diffusion_2.1_repackaged"),
    "control_v11p_sd15_canny_fp16.safetensors": ("controlnet", "comfyanonymous/ControlNet-v1-1_fp16_safetensors"),
    "flux1-dev.safetensors": ("diffusion_models", "Comfy-Org/flux1-dev"),
    "clip_l.safetensors": ("text_encoders", "comfyanonymous/flux_text_encoders"),
    "t5xxl_fp16.safetensors": ("text_encoders", "comfyanonymous/flux_text_encoders"),
    "ae.safetensors": ("vae", "Comfy-Org/Lumina_Image_2.0_Repackaged"),
}
"""Models that the examples name: their folder, and the repository that the frontend offers to load them from."""

_INSIDE = {"ae.safetensors": "split_files/vae/ae.safetensors"}


def models(*names: str) -> list[dict[str, str]]:
    """Return the entries with which the frontend offers to download missing models."""
    return [
        {
            "name": name,
            "url": f"{_FACE}/{FILES[name][1]}/resolve/main/{_INSIDE.get(name, name)}",
            "directory": FILES[name][0],
        }
        for name in names
    ]


def _checkpoint(graph: Graph, name: str) -> Node:
    return graph.add("CheckpointLoaderSimple", ckpt_name=name, models=models(name))


def _prompts(graph: Graph, clip: Output) -> tuple[Node, Node]:
    colours = {"title": "Positive prompt", "colour": GREEN}, {"title": "Negative prompt", "colour": RED}
    positive = graph.add("CLIPTextEncode", clip=clip, text=PROMPT, wide=400, **colours[0])
    negative = graph.add("CLIPTextEncode", clip=clip, text=NEGATIVE, wide=400, **colours[1])
    return positive, negative


def _sample(graph: Graph, model: Output, positive: Output, negative: Output, latent: Output, **settings: Any) -> Node:
    return graph.add(
        "KSampler",
        model=model,
        positive=positive,
        negative=negative,
        latent_image=latent,
        **({"seed": 42, "cfg": 7.0} | settings),
    )


def _finish(graph: Graph, sampler: Node, model: Output, decoder: Output, name: str, **report: Any) -> None:
    graph.column()
    decoded = graph.add("VAEDecode", samples=sampler["LATENT"], vae=decoder)
    graph.add("PacelineOptimizationReport", model=model, after=decoded["IMAGE"], wide=460, taller=260, **report)
    graph.column()
    graph.add("SaveImage", images=decoded["IMAGE"], filename_prefix=f"paceline/{name}", wide=460, taller=460)


def txt2img_baseline(graph: Graph) -> None:
    """Text to image without any of our nodes."""
    graph.note(
        "## Text to image, the baseline\n\nThe same picture as in *txt2img_tome_attention*, without any Paceline node: "
        "to compare with.\n\nModel: any SD 1.5 checkpoint in `models/checkpoints`."
    )
    graph.column()
    loader = _checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    graph.column()
    positive, negative = _prompts(graph, loader["CLIP"])
    latent = graph.add("EmptyLatentImage")
    graph.column()
    sampler = _sample(graph, loader["MODEL"], positive[0], negative[0], latent[0])
    graph.column()
    decoded = graph.add("VAEDecode", samples=sampler[0], vae=loader["VAE"])
    graph.add("SaveImage", images=decoded[0], filename_prefix="paceline/baseline", wide=460, taller=460)


def txt2img_tome_attention(graph: Graph) -> None:
    """SD 1.5 with the two nodes to begin with."""
    graph.note(
        "## Text to image with ToMe and attention\n\n**Apply ToMe** merges half of the image tokens before "
        "self-attention. **Set Attention Processor** picks the attention backend. **Optimization Report** says what "
        "they did: it runs after the sampler because the image is connected to *after*.\n\nAt 512 x 512 with a "
        "fast attention backend the gain is small: ToMe pays at 768 and above. Set *ratio* to 0, or bypass the node, "
        "to get exactly the baseline image.\n\nModel: any SD 1.5 or SDXL checkpoint in `models/checkpoints`."
    )
    graph.column()
    loader = _checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage")
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], method="merge")
    graph.column()
    attention = graph.add("PacelineSetAttentionProcessor", model=tome[0])
    positive, negative = _prompts(graph, loader["CLIP"])
    graph.column()
    sampler = _sample(graph, attention[0], positive[0], negative[0], latent[0])
    _finish(graph, sampler, attention[0], loader["VAE"], "tome_attention")


def sdxl_full_recipe(graph: Graph) -> None:
    """SDXL with everything that suits it."""
    graph.note(
        "## SDXL, everything at once\n\n1. **Quantize int8**: the linear layers that are faster in int8 here, "
        "measured\n2. **Fuse QKV**: three products as one\n3. **Apply ToMe** (preset `quality`): fewer tokens\n"
        "4. **Set Attention Processor**: the fastest exact backend\n5. **Compile UNet** and **Compile VAE**: the "
        "first image takes minutes longer, the next ones less\n\nThe order of the nodes makes no difference. Each one "
        "can be bypassed (Ctrl+B) to see what it is worth; **Optimization Report** says what each did.\n\nOn a "
        "machine where one of them cannot help, it says so, and how to go on: bypass it.\n\nModel: "
        "`sd_xl_base_1.0.safetensors`, or any SDXL checkpoint."
    )
    graph.column()
    loader = _checkpoint(graph, "sd_xl_base_1.0.safetensors")
    latent = graph.add("EmptyLatentImage", width=1024, height=1024)
    positive, negative = _prompts(graph, loader["CLIP"])
    graph.column()
    quantized = graph.add("PacelineQuantizeInt8", model=loader["MODEL"])
    fused = graph.add("PacelineFuseQKV", model=quantized[0])
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=fused[0], preset="quality")
    graph.column()
    attention = graph.add("PacelineSetAttentionProcessor", model=tome[0])
    compiled = graph.add("PacelineCompileUNet", model=attention[0])
    graph.column()
    vae = graph.add("PacelineCompileVAE", vae=loader["VAE"])
    sampler = _sample(graph, compiled[0], positive[0], negative[0], latent[0], steps=30, seed=42)
    _finish(graph, sampler, compiled[0], vae[0], "sdxl_full_recipe", vae=vae[0])


def img2img_preset(graph: Graph) -> None:
    """A picture as the beginning, with one node that chooses the others."""
    graph.note(
        "## Image to image with one node\n\n**Optimize (Preset)** applies what suits this model and this machine. "
        "`lossless` changes no more than rounding does, `balanced` a little, `fast` more. After a run, its context "
        "menu has *Turn into single nodes*.\n\nChoose a picture in *Load Image*. *denoise* of the KSampler says how "
        "much of it is drawn anew.\n\nModel: any SD 1.5 checkpoint."
    )
    graph.column()
    loader = _checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    picture = graph.add("LoadImage", image="example.png")
    graph.column()
    preset = graph.add("PacelineOptimizePreset", model=loader["MODEL"], vae=loader["VAE"], taller=160)
    positive, negative = _prompts(graph, loader["CLIP"])
    graph.column()
    latent = graph.add("VAEEncode", pixels=picture["IMAGE"], vae=preset["VAE"])
    sampler = _sample(graph, preset["MODEL"], positive[0], negative[0], latent[0], denoise=0.6)
    _finish(graph, sampler, preset["MODEL"], preset["VAE"], "img2img", vae=preset["VAE"])


def inpaint(graph: Graph) -> None:
    """Draw only what is masked."""
    graph.note(
        "## Inpainting\n\nOpen *Load Image*'s context menu, **Open in MaskEditor**, and paint over what shall be drawn "
        "anew. **Apply ToMe** works with inpainting models too; the preset `quality` thins out keys and values, so "
        "every pixel still asks for itself.\n\nModel: `512-inpainting-ema.safetensors`, or any inpainting checkpoint."
    )
    graph.column()
    loader = _checkpoint(graph, "512-inpainting-ema.safetensors")
    picture = graph.add("LoadImage", image="example.png")
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], preset="quality")
    graph.column()
    positive, negative = _prompts(graph, loader["CLIP"])
    latent = graph.add("VAEEncodeForInpaint", pixels=picture["IMAGE"], vae=loader["VAE"], mask=picture["MASK"])
    graph.column()
    sampler = _sample(graph, tome[0], positive[0], negative[0], latent[0])
    _finish(graph, sampler, tome[0], loader["VAE"], "inpaint")


def controlnet(graph: Graph) -> None:
    """A ControlNet, compiled for itself."""
    graph.note(
        "## ControlNet\n\nThe ControlNet is a second network that runs at every step. **Compile ControlNet** compiles "
        "it, **Compile UNet** the model; each can be bypassed alone. **Apply ToMe** leaves the ControlNet's own "
        "attention as it is.\n\nModels: any SD 1.5 checkpoint, and `control_v11p_sd15_canny_fp16.safetensors` in "
        "`models/controlnet`."
    )
    graph.column()
    loader = _checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    name = "control_v11p_sd15_canny_fp16.safetensors"
    control = graph.add("ControlNetLoader", control_net_name=name, models=models(name))
    picture = graph.add("LoadImage", image="example.png")
    graph.column()
    positive, negative = _prompts(graph, loader["CLIP"])
    edges = graph.add("Canny", image=picture["IMAGE"])
    latent = graph.add("EmptyLatentImage")
    graph.column()
    compiled_control = graph.add("PacelineCompileControlNet", control_net=control[0])
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], preset="quality")
    graph.column()
    compiled = graph.add("PacelineCompileUNet", model=tome[0])
    applied = graph.add(
        "ControlNetApplyAdvanced",
        positive=positive[0],
        negative=negative[0],
        control_net=compiled_control[0],
        image=edges[0],
        strength=0.8,
    )
    graph.column()
    sampler = _sample(graph, compiled[0], applied[0], applied[1], latent[0])
    _finish(graph, sampler, compiled[0], loader["VAE"], "controlnet", control_net=compiled_control[0])


def lora_int8_compile(graph: Graph) -> None:
    """A LoRA on int8 weights, compiled."""
    graph.note(
        "## LoRA, int8 and compile\n\nThe LoRA may stand before or behind **Quantize int8**; its strength can be "
        "changed without compiling anew. On GPUs int8 is reported to gain most with **Compile UNet**: bypass "
        "one or the other to see what each is worth on yours.\n\nModels: `sd_xl_base_1.0.safetensors` and an SDXL "
        "LoRA."
    )
    graph.column()
    loader = _checkpoint(graph, "sd_xl_base_1.0.safetensors")
    latent = graph.add("EmptyLatentImage", width=1024, height=1024)
    graph.column()
    quantized = graph.add("PacelineQuantizeInt8", model=loader["MODEL"], latent=latent[0])
    name = "sd_xl_offset_example-lora_1.0.safetensors"
    lora = graph.add(
        "LoraLoader",
        model=quantized[0],
        clip=loader["CLIP"],
        lora_name=name,
        strength_model=0.6,
        strength_clip=0.6,
        models=models(name),
    )
    graph.column()
    positive, negative = _prompts(graph, lora["CLIP"])
    compiled = graph.add("PacelineCompileUNet", model=lora["MODEL"])
    graph.column()
    sampler = _sample(graph, compiled[0], positive[0], negative[0], latent[0], steps=30)
    _finish(graph, sampler, compiled[0], loader["VAE"], "lora_int8_compile")


def flux_kv_downsample(graph: Graph) -> None:
    """A transformer model with fewer keys and values."""
    graph.note(
        "## Flux with fewer keys and values\n\n**Apply ToMe** with the method `kv_downsample` keeps every image token, "
        "and lets each look at a thinned-out image and at the whole text. It gains most for large pictures.\n\nModels: "
        "`flux1-dev.safetensors` in `models/diffusion_models`, `clip_l.safetensors` and `t5xxl_fp16.safetensors` in "
        "`models/text_encoders`, `ae.safetensors` in `models/vae`."
    )
    graph.column()
    loader = graph.add("UNETLoader", unet_name="flux1-dev.safetensors", models=models("flux1-dev.safetensors"))
    texts = ("clip_l.safetensors", "t5xxl_fp16.safetensors")
    clip = graph.add("DualCLIPLoader", clip_name1=texts[0], clip_name2=texts[1], type="flux", models=models(*texts))
    vae = graph.add("VAELoader", vae_name="ae.safetensors", models=models("ae.safetensors"))
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader[0], method="kv_downsample", ratio=0.75)
    graph.column()
    attention = graph.add("PacelineSetAttentionProcessor", model=tome[0])
    positive = graph.add("CLIPTextEncode", clip=clip[0], text=PROMPT, title="Prompt", colour=GREEN, wide=400)
    guided = graph.add("FluxGuidance", conditioning=positive[0], guidance=3.5)
    nothing = graph.add("ConditioningZeroOut", conditioning=positive[0])
    graph.column()
    latent = graph.add("EmptySD3LatentImage", width=1536, height=1536)
    settings = {"cfg": 1.0, "steps": 20, "sampler_name": "euler", "scheduler": "simple"}
    sampler = _sample(graph, attention[0], guided[0], nothing[0], latent[0], **settings)
    _finish(graph, sampler, attention[0], vae[0], "flux_kv_downsample")


def compare(graph: Graph) -> None:
    """Measure what some nodes bring and cost."""
    graph.note(
        "## What does it bring, and what does it cost?\n\n**Compare Models** samples with the plain model and with the "
        "one behind our nodes in turn, and shows both pictures with a slider, the speed-up with its uncertainty, and "
        "how the difference compares with that of another seed.\n\nPut any nodes between the loader and "
        "*model_optimized*, also those of other packs.\n\nModel: any SD 1.5 or SDXL checkpoint."
    )
    graph.column()
    loader = _checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage", width=1024, height=1024)
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], preset="balanced")
    graph.column()
    attention = graph.add("PacelineSetAttentionProcessor", model=tome[0])
    positive, negative = _prompts(graph, loader["CLIP"])
    graph.column()
    graph.add(
        "PacelineCompareModels",
        model_baseline=loader["MODEL"],
        model_optimized=attention[0],
        positive=positive[0],
        negative=negative[0],
        latent_image=latent[0],
        vae=loader["VAE"],
        seed=42,
        wide=460,
        taller=500,
    )


def sweep(graph: Graph) -> None:
    """Find the settings that suit your machine."""
    graph.note(
        "## Find your own settings\n\n**Benchmark Sweep** tries out every combination of the lines in *grid*, each "
        "against the plain model, and saves the fastest one whose picture stays near enough as a preset of **Optimize "
        "(Preset)**. It can be stopped at any time, and goes on where it was.\n\nModel: any SD 1.5 or SDXL checkpoint."
    )
    graph.column()
    loader = _checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage", width=768, height=768)
    graph.column()
    positive, negative = _prompts(graph, loader["CLIP"])
    graph.column()
    graph.add(
        "PacelineBenchmarkSweep",
        model=loader["MODEL"],
        positive=positive[0],
        negative=negative[0],
        latent_image=latent[0],
        vae=loader["VAE"],
        grid="ApplyToMe.preset: quality, balanced, fast\nSetAttentionProcessor.backend: auto",
        study="my settings",
        wide=460,
        taller=500,
    )


EXAMPLES: dict[str, Callable[[Graph], None]] = {
    make.__name__: make
    for make in (
        txt2img_baseline,
        txt2img_tome_attention,
        sdxl_full_recipe,
        img2img_preset,
        inpaint,
        controlnet,
        lora_int8_compile,
        flux_kv_downsample,
        compare,
        sweep,
    )
}
"""By file name, without ``.json``."""
