"""What the nodes bring and cost on the user's own machine."""

from __future__ import annotations

from .graph import Graph
from .parts import checkpoint, prompts


def compare(graph: Graph) -> None:
    """Measure what some nodes bring and cost."""
    graph.note(
        "## What does it bring, and what does it cost?\n\n**Compare Models** samples with the plain model and with the "
        "one behind our nodes in turn, and shows both pictures with a slider, the speed-up with its uncertainty, and "
        "how the difference compares with that of another seed.\n\nPut any nodes between the loader and "
        "*model_optimized*, also those of other packs.\n\nModel: any SD 1.5 or SDXL checkpoint."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage", width=1024, height=1024)
    graph.column()
    tome = graph.add("PacelineApplyToMe", model=loader["MODEL"], preset="balanced")
    graph.column()
    attention = graph.add("PacelineSetAttentionProcessor", model=tome[0])
    positive, negative = prompts(graph, loader["CLIP"])
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
    )


def sweep(graph: Graph) -> None:
    """Find the settings that suit your machine."""
    graph.note(
        "## Find your own settings\n\n**Benchmark Sweep** tries out every combination of the lines in *grid*, each "
        "against the plain model, and saves the fastest one whose picture stays near enough as a preset of **Optimize "
        "(Preset)**. It can be stopped at any time, and goes on where it was.\n\nModel: any SD 1.5 or SDXL checkpoint."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage", width=768, height=768)
    graph.column()
    positive, negative = prompts(graph, loader["CLIP"])
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
    )


def profile(graph: Graph) -> None:
    """See where the time of a run goes, and what helps."""
    graph.note(
        "## Where does the time go?\n\n**Profile** runs the model once, puts every step on the clock, and looks into "
        "one of them: attention, linear layers, convolutions, copies, waiting. Below, it names the nodes that make the "
        "largest parts shorter, with how much at most, and a button that inserts them before the sampler.\n\nThe "
        "tab **Speed** in the bottom panel shows the same for every run.\n\nModel: any SD 1.5 or SDXL checkpoint."
    )
    graph.column()
    loader = checkpoint(graph, "v1-5-pruned-emaonly-fp16.safetensors")
    latent = graph.add("EmptyLatentImage", width=1024, height=1024)
    graph.column()
    positive, negative = prompts(graph, loader["CLIP"])
    graph.column()
    job = {"positive": positive[0], "negative": negative[0], "latent_image": latent[0]}
    graph.add("PacelineProfile", model=loader["MODEL"], vae=loader["VAE"], **job, wide=460)
    graph.column()
    sampled = graph.add("KSampler", model=loader["MODEL"], **job)
    decoded = graph.add("VAEDecode", samples=sampled[0], vae=loader["VAE"])
    graph.add("SaveImage", images=decoded[0])
