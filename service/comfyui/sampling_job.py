"""One sampling run, as ComfyUI's KSampler node does it, with a clock beside it, and pictures of its latents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...measure.speedup import MOST_ROUNDS
from ...optimizers.core.devices import synchronize
from ...optimizers.core.errors import InvalidSetting, UnsupportedModel, require_choice, require_integer, require_number
from ...optimizers.core.settings import LARGEST_SEED, later_seed
from ...optimizers.in_comfyui.structure.model_facts import describe_model
from ...optimizers.in_comfyui.structure.protocols import VAE, Conditioning, Latent, ModelPatcher
from .links import fitting, mismatch_explained, require_conditioning, require_latent

Clock = Callable[[], float]
"""Returns seconds."""


def decode(vae: VAE, latent: Tensor) -> Tensor:
    """Decode as the VAE Decode node does, to ``[pictures, height, width, channels]`` in [0, 1].

    The frames of a video follow each other. `InvalidSetting` if the VAE decodes sound, or belongs to models with other
    latents.
    """
    try:
        images = vae.decode(latent)
    except RuntimeError:
        channels, given = getattr(vae, "latent_channels", None), latent.shape[1]
        if channels in (None, given):
            raise
        raise InvalidSetting(
            f"The VAE decodes latents of {channels} channels, and those of this model have {given}.",
            "Connect the VAE that belongs to the model.",
        ) from None
    if images.ndim < 4:
        raise InvalidSetting("The VAE decodes sound, not pictures.", "Connect it to audio_vae of Compare Models.")
    return images.flatten(0, -4) if images.ndim > 4 else images  # [batch, frames, ...] -> [batch * frames, ...]


def timed_decode(vae: VAE, latent: Tensor, device: torch.device, clock: Clock) -> tuple[Tensor, float]:
    """Return the result of ``decode``, and its seconds on the device."""
    synchronize(device)
    started = clock()
    images = decode(vae, latent)
    synchronize(device)
    return images, clock() - started


def decode_sound(vae: VAE, latent: Tensor) -> Tensor:
    """Decode to waves ``[batch, channels, samples]`` on the CPU; `InvalidSetting` if the VAE decodes pictures."""
    wave = vae.decode(latent)
    if wave.ndim != 3:
        raise InvalidSetting(
            "audio_vae decodes pictures, not sound.",
            "Connect the VAE of the model's sound, and that of pictures to vae.",
        )
    return wave.movedim(-1, 1).float().cpu()


def sample_rate(vae: VAE) -> int:
    """Return the sample rate of a VAE's sound in Hz, as the VAE Decode Audio node does."""
    return int(getattr(vae, "audio_sample_rate_output", getattr(vae, "audio_sample_rate", 44100)))


def preview(model: ModelPatcher, latent: Tensor) -> Tensor:
    """Return the rough colours of ComfyUI's live preview, one pixel for each place of the latent.

    ``latent`` is ``[batch, channels, (frames,) height, width]``. `UnsupportedModel` if ComfyUI knows no colours for it.
    """
    kind = model.get_model_object("latent_format")
    if not getattr(kind, "latent_rgb_factors", None):
        raise UnsupportedModel(
            f"ComfyUI has no preview colours for the latents of {describe_model(model)}, so there is no picture "
            "to compare.",
            "Connect a VAE to the node.",
        )
    latent = kind.process_in(latent.float())
    reshape = getattr(kind, "latent_rgb_factors_reshape", None)
    latent = latent if reshape is None else reshape(latent)
    factors = torch.tensor(kind.latent_rgb_factors)  # [channels, 3]
    pixels = latent.movedim(1, -1) @ factors
    if getattr(kind, "latent_rgb_factors_bias", None) is not None:
        pixels = pixels + torch.tensor(kind.latent_rgb_factors_bias)
    pixels = (pixels + 1) / 2
    return pixels.flatten(0, -4) if pixels.ndim > 4 else pixels


def streams_of(samples: Tensor) -> list[Tensor]:
    """Return the latents in the samples of a LATENT: one, or several in a NestedTensor, as a video and its sound."""
    return [*samples.unbind()] if samples.is_nested else [samples]


def samplers_and_schedulers() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of ComfyUI's."""
    from comfy.samplers import KSampler

    return tuple(KSampler.SAMPLERS), tuple(KSampler.SCHEDULERS)


@dataclass(frozen=True)
class SamplingJob:
    """What is sampled: the inputs of the KSampler node but the model, and the same names.

    The seeds take ``positive`` and ``further`` ones in its place in turn.

    `InvalidSetting` names the input that sampling could not use: ComfyUI lets links of a wrong type pass.
    """

    positive: Conditioning
    negative: Conditioning
    latent_image: Latent
    seed: int
    steps: int
    cfg: float
    sampler_name: str
    scheduler: str
    denoise: float = 1.0
    further: tuple[Conditioning, ...] = ()

    def __post_init__(self) -> None:
        samplers, schedulers = samplers_and_schedulers()
        require_conditioning("positive", self.positive)
        require_conditioning("negative", self.negative)
        require_latent("latent_image", self.latent_image)
        require_integer("seed", self.seed, 0, LARGEST_SEED)
        require_integer("steps", self.steps, 1, 10_000)
        require_number("cfg", self.cfg, -1000.0, 1000.0)
        require_number("denoise", self.denoise, 0.0, 1.0)
        require_choice("sampler_name", self.sampler_name, samplers)
        require_choice("scheduler", self.scheduler, schedulers)

    def sample(
        self,
        model: ModelPatcher,
        seed: int,
        clock: Clock,
        on_step: Callable[[], None],
        levels: Sequence[int] | None = None,
    ) -> Sampled:
        """Run it once, with a seed that is ``seed`` after its own, and the prompt of its turn.

        ``levels`` are the noise levels of the schedule that are evaluated, from 0; None for all. What ``on_step``
        raises after a step ends the run.
        """
        import comfy.sample
        import comfy.samplers

        device, latent = torch.device(model.load_device), self.latent_image
        positive = (self.positive, *self.further)[seed % self.prompts]
        seed = later_seed(self.seed, seed)
        image = fitting(model, latent)
        noise = comfy.sample.prepare_noise(image, seed, latent.get("batch_index"))
        done, first_step, sigmas = 0, 0.0, None
        if levels is not None:
            schedule = comfy.samplers.KSampler(
                model, self.steps, device, self.sampler_name, self.scheduler, self.denoise, model.model_options
            ).sigmas
            last = len(schedule) - 1  # some schedulers give fewer levels than steps
            sigmas = schedule[[*(level for level in levels if level < last), last]]

        def callback(step: int, denoised: object, current: object, total: int) -> None:
            nonlocal done, first_step
            done += 1
            if done == 1:  # the only one to be waited for: waiting hides what techniques save between steps
                synchronize(device)
                first_step = clock()
            on_step()

        synchronize(device)
        started = clock()
        with mismatch_explained("latent_image", model, image, positive, self.negative):
            samples: Tensor = comfy.sample.sample(
                model,
                noise,
                self.steps,
                self.cfg,
                self.sampler_name,
                self.scheduler,
                positive,
                self.negative,
                image,
                denoise=self.denoise,
                noise_mask=latent.get("noise_mask"),
                sigmas=sigmas,
                callback=callback,
                disable_pbar=True,
                seed=seed,
            )
        synchronize(device)
        ended = clock()
        each = (ended - first_step) / (done - 1) if done > 1 else None
        streams = [stream.detach().cpu() for stream in streams_of(samples)]
        return Sampled(streams[0], ended - started, each, streams[-1] if len(streams) > 1 else None)

    @property
    def prompts(self) -> int:
        return 1 + len(self.further)

    def settings(self) -> dict[str, Any]:
        """Return the inputs in words, for the record."""
        names = ("seed", "steps", "cfg", "sampler_name", "scheduler", "denoise")
        shape = list(self.latent_image["samples"].shape)
        given = {name: getattr(self, name) for name in names} | {"other_seed": later_seed(self.seed, MOST_ROUNDS)}
        return {**given, "prompts": self.prompts, "latent_shape": shape}


@dataclass(frozen=True)
class Sampled:
    """The result of a sampling run.

    Attributes:
        latent: on the CPU, ``[batch, channels, (frames,) height, width]``.
        sound: the latent of a video's sound, on the CPU, where the network draws both.
        seconds: of the whole run, with loading the model if it was not there.
        seconds_per_step: mean of all steps but the first, in which things are loaded and built; None for one step.
    """

    latent: Tensor
    seconds: float
    seconds_per_step: float | None
    sound: Tensor | None = None
