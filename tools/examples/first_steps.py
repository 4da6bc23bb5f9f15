"""One or two of our nodes in the workflows that everybody knows."""

from __future__ import annotations

from .graph import Graph
from .parts import checkpoint, finish, prompts, sample


def txt2img_baseline(graph: Graph) -> None:
    """Text to image without any of our nodes."""
    graph.note(
        "## Text to image, the baseline\n\nThe same picture as in *txt2img_tome_attention*, without any Paceline node: "
        "to compare with.\n\nModel: any SD 1.5 checkpoint in *models/checkpoints*."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    graph.column()
    positive, negative = prompts(graph, loader["CLIP"])
    latent = graph.add("EmptyLatentImage")
    graph.column()
    sampler = sample(graph, loader["MODEL"], positive[0], negative[0], latent[0])
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
        "to get exactly the baseline image.\n\nModel: any SD 1.5 or SDXL checkpoint in *models/checkpoints*."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage")
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], method="merge")
    graph.column()
    attention = graph.add("PacelineSetAttentionProcessor", model=tome[0])
    positive, negative = prompts(graph, loader["CLIP"])
    graph.column()
    sampler = sample(graph, attention[0], positive[0], negative[0], latent[0])
    finish(graph, sampler, attention[0], loader["VAE"], "tome_attention")


def reuse_steps(graph: Graph) -> None:
    """SD 1.5 with steps left out."""
    graph.note(
        "## Steps left out\n\n**Reuse Steps** leaves the network out in steps whose result can be forecast from the "
        "steps before, until the picture would move farther than *budget*: a share of what another seed changes. The "
        "report says how many steps were computed, and how much of the budget was used.\n\n*budget* 0 leaves nothing "
        "out. Look at **Compare Models** too: it also draws the plain model with as many steps as fit into the same "
        "time.\n\nModel: any checkpoint in *models/checkpoints* that is not made for a few steps."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage")
    graph.column()
    reused = graph.add("PacelineReuseSteps", model=loader["MODEL"])
    positive, negative = prompts(graph, loader["CLIP"])
    graph.column()
    settings = {"steps": 25, "sampler_name": "dpmpp_2m", "scheduler": "karras"}
    sampler = sample(graph, reused[0], positive[0], negative[0], latent[0], **settings)
    finish(graph, sampler, reused[0], loader["VAE"], "reuse_steps")


def img2img_preset(graph: Graph) -> None:
    """A picture as the beginning, with one node that chooses the others."""
    graph.note(
        "## Image to image with one node\n\n**Optimize (Preset)** applies what suits this model and this machine. "
        "*lossless* changes no more than rounding does, *balanced* a little, *fast* more. After a run, its context "
        "menu has *Turn into single nodes*.\n\nChoose a picture in *Load Image*. *denoise* of the KSampler says how "
        "much of it is drawn anew.\n\nModel: any SD 1.5 checkpoint."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    picture = graph.add("LoadImage", image="example.png")
    graph.column()
    preset = graph.add("PacelineOptimizePreset", model=loader["MODEL"], vae=loader["VAE"], taller=160)
    positive, negative = prompts(graph, loader["CLIP"])
    graph.column()
    latent = graph.add("VAEEncode", pixels=picture["IMAGE"], vae=preset["VAE"])
    sampler = sample(graph, preset["MODEL"], positive[0], negative[0], latent[0], denoise=0.6)
    finish(graph, sampler, preset["MODEL"], preset["VAE"], "img2img", vae=preset["VAE"])


def inpaint(graph: Graph) -> None:
    """Draw only what is masked."""
    graph.note(
        "## Inpainting\n\nOpen *Load Image*'s context menu, **Open in MaskEditor**, and paint over what shall be drawn "
        "anew. **Apply ToMe** works with inpainting models too; the preset *quality* thins out keys and values, so "
        "every pixel still asks for itself.\n\nModel: *512-inpainting-ema.safetensors*, or any inpainting checkpoint."
    )
    graph.column()
    loader = checkpoint(graph, "512-inpainting-ema.safetensors")
    picture = graph.add("LoadImage", image="example.png")
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], preset="quality")
    graph.column()
    positive, negative = prompts(graph, loader["CLIP"])
    latent = graph.add("VAEEncodeForInpaint", pixels=picture["IMAGE"], vae=loader["VAE"], mask=picture["MASK"])
    graph.column()
    sampler = sample(graph, tome[0], positive[0], negative[0], latent[0])
    finish(graph, sampler, tome[0], loader["VAE"], "inpaint")
