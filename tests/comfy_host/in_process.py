"""ComfyUI inside this Python process: start it up once, then sample through its own functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from . import standins
from .paths import host_dir

folder: Path | None = None
"""Where this ComfyUI keeps what it writes, set before it starts; None: in its own folders, beside other processes."""

_started: str | None = None


def bootstrap(cpu: bool = True) -> None:
    """Make ``import comfy`` work in this process; later calls do nothing.

    Must run before the first ``import comfy`` that is not ours, because ComfyUI reads its settings while it is
    imported.

    Args:
        cpu: stay on the CPU even if there is a GPU. With False, the GPU is used where there is one.

    Raises:
        RuntimeError: if an earlier call in this process asked for the other device.
    """
    global _started
    import torch

    device = "cpu" if cpu or not torch.cuda.is_available() else "cuda"
    if _started is not None:
        if _started != device:
            raise RuntimeError(
                f"ComfyUI already runs on {_started} in this process. It reads its settings only once: "
                f"start another process to use {device}."
            )
        return
    standins.install()
    host = str(host_dir())
    if host not in sys.path:
        sys.path.insert(0, host)

    import comfy.cli_args  # parses no command line: only main.py enables that

    comfy.cli_args.args.cpu = device == "cpu"
    # The sub-quadratic attention that ComfyUI picks on a CPU asks psutil for free memory in every call.
    comfy.cli_args.args.use_pytorch_cross_attention = device == "cpu"
    if folder is not None:
        import folder_paths

        folder_paths.set_user_directory(str(folder / "user"))
        folder_paths.set_output_directory(str(folder / "output"))
        folder_paths.set_temp_directory(str(folder))
    _started = device


def use_dynamic_vram() -> bool:
    """Let ComfyUI manage a GPU's memory as its server does by default on NVIDIA; return whether it does now.

    Its ``main.py`` decides that, which is not run here. Needs :func:`bootstrap` before, and models made after.
    """
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        return False
    try:
        import comfy_aimdo.control as control

        control.init()  # before ComfyUI's modules are imported: theirs take what is loaded then
        import comfy.memory_management
        import comfy.model_management
        import comfy.model_patcher

        if not control.init_devices(device.index for device in comfy.model_management.get_all_torch_devices()):
            return False
        control.set_log_warning()
    except (ImportError, TypeError, RuntimeError) as error:
        print(f"without dynamic VRAM: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    comfy.model_patcher.CoreModelPatcher = comfy.model_patcher.ModelPatcherDynamic
    comfy.memory_management.aimdo_enabled = True
    return True


def encode(clip: Any, text: str) -> list[list[Any]]:
    """Return the conditioning for ``text``, as ComfyUI's CLIPTextEncode node does."""
    import torch

    with torch.inference_mode():
        return clip.encode_from_tokens_scheduled(clip.tokenize(text))


def random_conditioning(model: Any, tokens: int = 77, seed: int = 0) -> list[list[Any]]:
    """Return a random conditioning that fits a MODEL with a UNet; another seed is another "prompt"."""
    import torch

    config = model.model.model_config.unet_config
    generator = torch.Generator().manual_seed(seed)
    # [1, tokens, channels] and [1, channels]
    context = torch.randn(1, tokens, config["context_dim"], generator=generator)
    pooled = torch.randn(1, 1280, generator=generator)
    return [[context, {"pooled_output": pooled}]]


def sample(
    model: Any,
    positive: list[list[Any]],
    negative: list[list[Any]],
    latent: Any,
    seed: int = 0,
    steps: int = 2,
    cfg: float = 7.0,
    sampler: str = "euler",
    scheduler: str = "normal",
    denoise: float = 1.0,
    sigmas: Any = None,
) -> Any:
    """Sample as the KSampler node does, without progress bar, and return the latent ``[batch, 4, h, w]``.

    ``latent`` is such a tensor, or LATENT (with "noise_mask" where only a part is drawn); ``sigmas`` are noise levels,
    the last one included, instead of the schedule's; all else as the node's.
    """
    import comfy.sample
    import torch

    samples, mask = (latent["samples"], latent.get("noise_mask")) if isinstance(latent, dict) else (latent, None)
    # The executor runs every node in inference mode; a model that only works outside of it is broken in ComfyUI.
    with torch.inference_mode():
        noise = comfy.sample.prepare_noise(samples, seed)
        given = (noise, steps, cfg, sampler, scheduler, positive, negative, samples)
        more = {"denoise": denoise, "noise_mask": mask, "sigmas": sigmas, "disable_pbar": True, "seed": seed}
        return comfy.sample.sample(model, *given, **more)
