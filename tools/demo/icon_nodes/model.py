"""Loads icon models and the emoji model as ComfyUI MODELs, and turns words into conditioning, latents into pictures.

Usable without any node, once ComfyUI is importable:
    patcher, encoder = load()
    words, empty = encoder("red apple"), encoder("")
    latent = comfy.sample.sample(patcher, noise, 20, 1.5, "euler", "normal", words, empty, blank)
    image = decode(latent, scale=8)

The model is a real `BaseModel` around a real `UNetModel`. Core would not recognise the file by itself, because
its detection knows Stable Diffusion 1.5 only at 320 channels; so the configuration comes from the file's metadata,
and none of core's lists are changed.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import comfy.latent_formats
import comfy.model_base
import comfy.model_management
import comfy.model_patcher
import comfy.model_sampling
import comfy.supported_models
import comfy.utils
import torch

FOLDER = Path(__file__).resolve().parent
DEFAULT_WEIGHTS = FOLDER / "emoji32.safetensors"
WEIGHTS_BESIDE = FOLDER.parents[2] / "benchmarks" / "weights"
IGNORED_WORDS = frozenset({"a", "an", "and", "of", "the", "with"})


class PictureLatent(comfy.latent_formats.LatentFormat):
    """Premultiplied RGBA in [-1, 1]: the latent is the picture.

    The ratio between image and latent stays at core's default of 8, which is what `decode` enlarges by: core's
    Empty Latent Image at 256x256 therefore gives the 32x32 the model was trained on.
    """

    scale_factor = 1.0
    latent_channels = 4
    # Compositing on white is linear, so core's live preview shows what `decode` will: rgb - alpha + 1.
    latent_rgb_factors = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -1.0, -1.0]]
    latent_rgb_factors_bias = [1.0, 1.0, 1.0]


class UNetConfig(comfy.supported_models.SD15):
    """Stable Diffusion 1.5 in small; the real `unet_config` of an instance is read from the weights file."""

    unet_extra_config: dict[str, Any] = {}
    latent_format = PictureLatent

    def __init__(self, unet_config: dict[str, Any], v_prediction: bool, zero_terminal_snr: bool) -> None:
        super().__init__(unet_config)
        self.v_prediction = v_prediction
        self.sampling_settings["zsnr"] = zero_terminal_snr

    def model_type(self, state_dict: dict[str, torch.Tensor], prefix: str = "") -> comfy.model_base.ModelType:
        """Return the way the network was trained to predict."""
        model_type = comfy.model_base.ModelType
        return model_type.V_PREDICTION if self.v_prediction else model_type.EPS


class LuminaConfig(comfy.supported_models.Lumina2):
    """Lumina 2 in small: the image transformer that was trained on icons.

    It is made for pictures of 64 pixels a side. Smaller ones, of an earlier stage of its training, are the same
    picture from farther away: tokens stand farther apart, and a noise level is called as at 64 pixels.
    """

    latent_format = PictureLatent

    def __init__(self, unet_config: dict[str, Any]) -> None:
        super().__init__(unet_config)
        self.sampling_settings = {"multiplier": 1.0, "shift": unet_config["side"] / 32}

    def place(self, patcher: comfy.model_patcher.ModelPatcher) -> None:
        """Have a patcher draw pictures of the side that its weights were trained on."""
        apart = 64 / self.unet_config["side"]
        if apart != 1.0:
            patcher.model.model_sampling.timestep = partial(comfy.model_sampling.time_snr_shift, apart)
            middle = (apart - 1) / 2
            patcher.set_model_rope_options(apart, middle, apart, middle, 1.0, 0.0)


class VideoLatent(PictureLatent):
    """Frames of that form, ``[batch, 4, frames, height, width]``."""

    latent_dimensions = 3


class WanConfig(comfy.supported_models.WAN21_T2V):
    """Wan 2.1 in small: the video transformer that was trained on moving icons."""

    latent_format = VideoLatent
    sampling_settings = {"shift": 2.0}  # noise as strong as in training: eight frames show more than one


FLOW_CONFIGS = {"lumina2": LuminaConfig, "wan2.1": WanConfig}


class TextTable:
    """Words -> conditioning, through the table of embeddings that was trained with the model."""

    def __init__(
        self,
        embedding: torch.Tensor,  # [words, channels]
        position: torch.Tensor,  # [tokens, channels]
        vocabulary: dict[str, int],
        names: list[str],
        pooled: bool = False,  # whether the model also reads the mean of the words
    ) -> None:
        self.embedding = embedding.float().cpu()
        self.position = position.float().cpu()
        self.rows = vocabulary
        self.names = names
        self.pooled = pooled

    @property
    def vocabulary(self) -> list[str]:
        """Every word the model knows, in alphabetical order."""
        return sorted(word for word in self.rows if not word.startswith("<"))

    def __call__(self, text: str) -> list[list[Any]]:
        """Return CONDITIONING `[[tensor [1, tokens, channels], {}]]`; the empty prompt is the unconditional one."""
        words = [word for word in re.findall(r"[\w-]+", text.lower()) if word not in IGNORED_WORDS]
        unknown = [word for word in words if word not in self.rows]
        if unknown:
            raise ValueError(self._explain(unknown))
        length = len(self.position)
        if len(words) > length:
            raise ValueError(f"This model reads at most {length} words, {text!r} has {len(words)}.")
        ids = [self.rows[word] for word in words] or [self.rows["<null>"]]
        ids += [self.rows["<pad>"]] * (length - len(ids))
        read = (self.embedding[ids] + self.position)[None]
        return [[read, {"pooled_output": read.mean(1)} if self.pooled else {}]]

    def _explain(self, unknown: list[str]) -> str:
        """Say which words the model does not know, what could have been meant, and which ones it knows."""
        known = self.vocabulary
        guesses = [match for word in unknown for match in difflib.get_close_matches(word, known, n=1)]
        hint = f" Did you mean {', '.join(guesses)}?" if guesses else ""
        return (
            f"Not among this model's words: {', '.join(unknown)}.{hint} "
            f"It was trained on these {len(known)} words only: {', '.join(known)}."
        )


def files() -> dict[str, Path]:
    """Return the weights files in this folder, and in the repository's ``benchmarks/weights``, by name."""
    return {path.name: path for folder in (FOLDER, WEIGHTS_BESIDE) for path in folder.glob("*.safetensors")}


def load(
    path: str | Path | None = None, disable_dynamic: bool = False
) -> tuple[comfy.model_patcher.ModelPatcher, TextTable]:
    """Load a weights file as core's own loaders do and return (MODEL, text encoder).

    Args:
        path: a file of such weights; the emoji model beside this module when None.
        disable_dynamic: use the plain ModelPatcher even where core manages memory dynamically.
    """
    path = str(path or DEFAULT_WEIGHTS)
    state, metadata = comfy.utils.load_torch_file(path, return_metadata=True)
    if not metadata or "config" not in metadata or "vocabulary" not in metadata:
        raise ValueError(f"{path} is not one of these small models: its metadata holds no 'config' and 'vocabulary'.")
    text = TextTable(
        state.pop("text.embedding"),
        state.pop("text.position"),
        json.loads(metadata["vocabulary"]),
        json.loads(metadata["names"]),
        pooled=metadata.get("prediction") == "flow",
    )
    state = comfy.utils.state_dict_prefix_replace(state, {"model.diffusion_model.": ""}, filter_keys=True)
    patcher = _load_unet(state, metadata, disable_dynamic)
    # Lets clone(disable_dynamic=True), weight hooks and multi-GPU make a second copy from the file.
    patcher.cached_patcher_init = (load, (path,), 0)
    return patcher, text


def _load_unet(
    state: dict[str, torch.Tensor], metadata: dict[str, str], disable_dynamic: bool
) -> comfy.model_patcher.ModelPatcher:
    """Build model and patcher the way core does for a diffusion model whose configuration is known."""
    management = comfy.model_management
    unet_config = json.loads(metadata["config"])
    if metadata.get("prediction") == "flow":
        config = FLOW_CONFIGS[unet_config["image_model"]](unet_config)
    else:
        config = UNetConfig(
            unet_config,
            v_prediction=metadata.get("prediction") == "v_prediction",
            zero_terminal_snr=metadata.get("zsnr") == "true",
        )
    load_device, offload_device = management.get_torch_device(), management.unet_offload_device()
    supported = list(config.supported_inference_dtypes)
    dtype = management.unet_dtype(
        model_params=comfy.utils.calculate_parameters(state),
        supported_dtypes=supported,
        weight_dtype=comfy.utils.weight_dtype(state),
    )
    config.set_inference_dtype(dtype, management.unet_manual_cast(dtype, load_device, supported))
    model = config.get_model(state, "")
    model.to(offload_device)
    plain = comfy.model_patcher.ModelPatcher
    # CoreModelPatcher is the dynamic one where core has that switched on; older releases have only the plain one.
    patcher_class = plain if disable_dynamic else getattr(comfy.model_patcher, "CoreModelPatcher", plain)
    patcher = patcher_class(model, load_device=load_device, offload_device=offload_device)
    # A dynamic patcher keeps the file's own tensors, so that it can drop and re-read them.
    model.load_model_weights(state, "", assign=patcher.is_dynamic())
    if isinstance(config, LuminaConfig):
        config.place(patcher)
    return patcher


def decode(latent: torch.Tensor | dict[str, Any], scale: int = 8) -> torch.Tensor:
    """Composite a latent on white and enlarge it by nearest.

    Args:
        latent: [batch, 4, height, width] in [-1, 1], or LATENT (a dict with "samples").
        scale: whole number of image pixels per latent pixel.

    Returns:
        IMAGE [batch, height * scale, width * scale, 3] in [0, 1] on the CPU.
    """
    samples = latent["samples"] if isinstance(latent, dict) else latent
    if samples.ndim != 4 or samples.shape[1] != 4:
        shape = list(samples.shape)
        raise ValueError(f"Latents of the icon models have the shape [batch, 4, height, width], this one is {shape}.")
    pixels = samples.detach().to("cpu", torch.float32).add(1.0).mul(0.5).clamp(0.0, 1.0)
    rgb = (pixels[:, :3] + 1.0 - pixels[:, 3:]).clamp(0.0, 1.0)
    rgb = rgb.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    return rgb.permute(0, 2, 3, 1).contiguous()  # BCHW -> BHWC
