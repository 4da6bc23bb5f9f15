"""A real ComfyUI in this process: its own models with random weights, its own samplers and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import emoji_model
import pytest
import torch
from comfy_host import checkpoints, in_process, pack, transformers
from comparing import Emoji
from compiled_models import with_model_of_its_own
from executing import Executor
from int8_models import TINY
from writing import comfyui_writes_to

# What the node cannot do without; for the rest, the defaults of the settings are those of the node.
TOME = {"preset": "custom", "method": "merge", "ratio": 0.5, "max_downsample": "auto", "residual": "off"}


@pytest.fixture(scope="session", autouse=True)
def int8_gains() -> Iterator[None]:
    """Let each int8 layer take half of the time, on every machine; what a kernel cannot compute it still refuses."""
    from paceline.optimizers.quantization.layer_times import Timings

    def measure(timings: Any, inputs: int, outputs: int) -> list[float]:
        weight = torch.ones(outputs, inputs, device=timings.device)
        made = timings.layers(weight, weight[:, 0].to(timings.dtype))
        made[1](torch.ones(32, inputs, device=timings.device, dtype=timings.dtype))
        return [2.0, 1.0]

    with patch.object(Timings, "_measure", measure):
        yield


@pytest.fixture(scope="session", autouse=True)
def each_run_is_a_prompt() -> Iterator[None]:
    """Here is no server that names prompts, and most tests ask about one run: each is a prompt of its own."""
    from paceline.optimizers.in_comfyui.run import stack

    with patch.object(stack, "running_prompt", object):
        yield


class Studio:
    """Shorthand for what a workflow does: load, apply nodes, sample."""

    def __init__(self) -> None:
        in_process.bootstrap()
        self.nodes = pack.load_nodes()
        # Odd sizes and widths that are not multiples of each other, so that mixed up axes cannot go unnoticed.
        self.model = checkpoints.tiny_sd15(width=32, context=48)
        self.positive = in_process.random_conditioning(self.model, seed=1)
        self.negative = in_process.random_conditioning(self.model, seed=2)

    def run(self, node: str, **inputs: Any) -> Any:
        """Execute one of our nodes with these inputs and return its first output; what cannot help is an error."""
        strict = {"strict": True} if "strict" in {put.id for put in self.nodes[node].define_schema().inputs} else {}
        return self.nodes[node].execute(**strict | inputs).result[0]

    def tome(self, model: Any, **settings: Any) -> Any:
        return self.run("PacelineApplyToMe", model=model, **{**TOME, **settings})

    def attention(self, model: Any, backend: str) -> Any:
        return self.run("PacelineSetAttentionProcessor", model=model, backend=backend)

    def report(self, model: Any = None, **others: Any) -> str:
        """Return the report, with the counts below each headline."""
        from paceline.optimizers.in_comfyui.run.stack import stack_of
        from paceline.optimizers.in_comfyui.targets.method_proxy import stack_on

        text = shown = self.run("PacelineOptimizationReport", model=model, **others) + "\n"
        stacks = [stack_of(model)] if model is not None else [stack_on(one) for one in others.values()]
        for said in (one.last_summary() for stack in stacks for one in stack.techniques):
            counts = ", ".join(f"{name.replace('_', ' ')}: {count:g}" for name, count in said.counts.items() if count)
            assert not counts or counts not in shown, "numbers behind a sentence are for programs"
            text = text.replace(f": {said.headline}\n", f": {said.headline}\n    {counts}\n")
        return text

    def sample(
        self, model: Any, size: tuple[int, int] = (24, 16), batch: int = 1, steps: int = 2, **options: Any
    ) -> torch.Tensor:
        """Sample latents ``[batch, 4, *size]``."""
        latent = options.pop("latent", torch.zeros(batch, 4, *size))
        positive = options.pop("positive", self.positive)
        negative = options.pop("negative", self.negative)
        return in_process.sample(model, positive, negative, latent, steps=steps, **{"seed": 7, **options})

    def draw(self, family: str, model: Any, steps: int = 1, cfg: float = 1.0) -> torch.Tensor:
        """Sample with a small transformer; video and sound are flat, one behind the other."""
        texts = (transformers.conditioning(family, seed=seed) for seed in (1, 2))
        drawn = in_process.sample(model, *texts, transformers.latent(family), 7, steps, cfg, scheduler="simple")
        return torch.cat([stream.flatten() for stream in drawn.unbind()])

    def in_dtype(self, weights: torch.dtype, compute: torch.dtype) -> Any:
        """Return ComfyUI's own model of the same weights, loaded in another dtype."""
        import comfy.model_management
        import comfy.model_patcher
        import comfy.supported_models

        config = comfy.supported_models.SD15(checkpoints.SD15_CONFIG | {"model_channels": 32, "context_dim": 48})
        config.unet_config |= {"num_heads": 4, "num_head_channels": -1}
        config.set_inference_dtype(weights, None if weights == compute else compute)
        base = config.get_model({}, "", device=torch.device("cpu")).eval()
        source = self.model.model.diffusion_model.state_dict()
        base.diffusion_model.load_state_dict({name: tensor.to(weights) for name, tensor in source.items()})
        device = comfy.model_management.get_torch_device()
        return comfy.model_patcher.CoreModelPatcher(base, device, device)

    def options_seen(self, model: Any, **options: Any) -> list[dict[str, Any]]:
        """Sample, and return the transformer options of every model call, as they are inside of our wrapper."""
        seen = []

        def look(executor: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(kwargs["transformer_options"] if "transformer_options" in kwargs else args[5])
            return executor(*args, **kwargs)

        clone = model.clone()
        clone.add_wrapper_with_key("apply_model", "look", look)
        self.sample(clone, **options)
        return seen


@pytest.fixture(scope="session")
def studio() -> Studio:
    return Studio()


@pytest.fixture(scope="module")
def comfyui(studio: Studio) -> Iterator[Executor]:
    """ComfyUI's executor, in this process."""
    executor = Executor()
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def small(studio: Studio) -> Studio:
    """The studio with the model that is compiled in the shortest time: one level, two transformer blocks."""
    return with_model_of_its_own(studio, checkpoints.smallest_unet())


@pytest.fixture(scope="session")
def sdxl(studio: Studio) -> Any:
    """A MODEL with SDXL's blocks, narrow."""
    return checkpoints.sdxl_layout(width=32, head_channels=32, context=64)


@pytest.fixture(scope="session")
def baseline(studio: Studio) -> torch.Tensor:
    """Latents of the untouched model, with the defaults of ``Studio.sample``."""
    return studio.sample(studio.model)


@pytest.fixture(scope="module")
def emoji(studio: Studio) -> Emoji:
    """Comparisons with the demo's trained model."""
    return Emoji(studio)


@pytest.fixture(scope="module")
def icons(studio: Studio) -> Any:
    """The trained icon model, and what encodes its prompts."""
    return emoji_model.load(emoji_model.ICONS)


@pytest.fixture
def fuse(studio: Studio) -> Callable[[Any], Any]:
    """Apply Fuse QKV to a MODEL."""
    return lambda model: studio.run("PacelineFuseQKV", model=model)


@pytest.fixture
def quantize(studio: Studio) -> Callable[..., Any]:
    """Apply Quantize int8 to a MODEL, by default to the same layers on every machine."""
    return lambda model, **settings: studio.run("PacelineQuantizeInt8", model=model, **{**TINY, **settings})


@pytest.fixture
def core_node() -> Callable[..., Any]:
    """Run a node of ComfyUI itself: ``core_node("module", "Class", **inputs)`` gives its first output."""
    from importlib import import_module

    def run(module: str, name: str, **inputs: Any) -> Any:
        node = getattr(import_module(module), name)
        if hasattr(node, "define_schema"):
            result = node.execute(**inputs)
            return result.result[0] if hasattr(result, "result") else result[0]
        return getattr(node(), node.FUNCTION)(**inputs)[0]

    return run


def empty_folder(kind: str) -> Any:
    """Return a fixture: a folder of ComfyUI's, ``output``, ``user`` or ``temp``, that is empty."""

    @pytest.fixture
    def folder(comfy: Any, tmp_path: Path) -> Iterator[Path]:
        with comfyui_writes_to(**{kind: tmp_path}):
            yield tmp_path

    return folder


output_folder, user_folder, temp_folder = map(empty_folder, ("output", "user", "temp"))
