"""Several of our nodes together, on larger models."""

from __future__ import annotations

from .graph import Graph
from .model_files import models
from .parts import GREEN, PROMPT, checkpoint, finish, prompts, sample


def sdxl_full_recipe(graph: Graph) -> None:
    """SDXL with everything that suits it."""
    graph.note(
        "## SDXL, everything at once\n\n1. **Quantize int8**: the linear layers that are faster in int8 here, "
        "measured\n2. **Fuse QKV**: three products as one\n3. **Apply ToMe** (preset *quality*): fewer tokens\n"
        "4. **Set Attention Processor**: the fastest exact backend\n5. **Compile UNet** and **Compile VAE**: the "
        "first image takes minutes longer, the next ones less\n\nThe order of the nodes makes no difference. Each one "
        "can be bypassed (Ctrl+B) to see what it is worth; **Optimization Report** says what each did.\n\nOn a "
        "machine where one of them cannot help, it says so, and how to go on: bypass it.\n\nModel: "
        "*sd_xl_base_1.0.safetensors*, or any SDXL checkpoint."
    )
    graph.column()
    loader = checkpoint(graph, "sd_xl_base_1.0.safetensors")
    latent = graph.add("EmptyLatentImage", width=1024, height=1024)
    positive, negative = prompts(graph, loader["CLIP"])
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
    sampler = sample(graph, compiled[0], positive[0], negative[0], latent[0], steps=30, seed=42)
    finish(graph, sampler, compiled[0], vae[0], "sdxl_full_recipe", vae=vae[0])


def controlnet(graph: Graph) -> None:
    """A ControlNet, compiled for itself."""
    graph.note(
        "## ControlNet\n\nThe ControlNet is a second network that runs at every step. **Compile ControlNet** compiles "
        "it, **Compile UNet** the model; each can be bypassed alone. **Apply ToMe** leaves the ControlNet's own "
        "attention as it is.\n\nModels: any SD 1.5 checkpoint, and *control_v11p_sd15_canny_fp16.safetensors* in "
        "*models/controlnet*."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    name = "control_v11p_sd15_canny_fp16.safetensors"
    control = graph.add("ControlNetLoader", control_net_name=name, models=models(name))
    picture = graph.add("LoadImage", image="example.png")
    graph.column()
    positive, negative = prompts(graph, loader["CLIP"])
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
    sampler = sample(graph, compiled[0], applied[0], applied[1], latent[0])
    finish(graph, sampler, compiled[0], loader["VAE"], "controlnet", control_net=compiled_control[0])


def lora_int8_compile(graph: Graph) -> None:
    """A LoRA on int8 weights, compiled."""
    graph.note(
        "## LoRA, int8 and compile\n\nThe LoRA may stand before or behind **Quantize int8**; its strength can be "
        "changed without compiling anew. On GPUs int8 is reported to gain most with **Compile UNet**: bypass "
        "one or the other to see what each is worth on yours.\n\nModels: *sd_xl_base_1.0.safetensors* and an SDXL "
        "LoRA."
    )
    graph.column()
    loader = checkpoint(graph, "sd_xl_base_1.0.safetensors")
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
    positive, negative = prompts(graph, lora["CLIP"])
    compiled = graph.add("PacelineCompileUNet", model=lora["MODEL"])
    graph.column()
    sampler = sample(graph, compiled[0], positive[0], negative[0], latent[0], steps=30)
    finish(graph, sampler, compiled[0], loader["VAE"], "lora_int8_compile")


def flux_kv_downsample(graph: Graph) -> None:
    """A transformer model with fewer keys and values."""
    graph.note(
        "## Flux with fewer keys and values\n\n**Apply ToMe** with the method *kv_downsample* keeps every image token, "
        "and lets each look at a thinned-out image and at the whole text. It gains most for large pictures.\n\nModels: "
        "*flux1-dev.safetensors* in *models/diffusion_models*, *clip_l.safetensors* and *t5xxl_fp16.safetensors* in "
        "*models/text_encoders*, *ae.safetensors* in *models/vae*."
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
    sampler = sample(graph, attention[0], guided[0], nothing[0], latent[0], **settings)
    finish(graph, sampler, attention[0], vae[0], "flux_kv_downsample")
