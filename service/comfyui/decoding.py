"""What a VAE has decoded in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...optimizers.in_comfyui.structure.protocols import VAE


@dataclass
class Decoding:
    """What the VAE of a link decoded in one run: ``seconds`` of all calls, and the first of them, of a latent."""

    link: str
    vae: VAE
    method: str
    samples: Tensor
    seconds: float
    args: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def again(self, vae: VAE) -> Tensor:
        """Return what a VAE makes of the same."""
        decoded: Tensor = getattr(vae, self.method)(self.samples, *self.args, **self.options)
        return decoded

    @property
    def memory(self) -> tuple[float, float]:
        """Bytes that the first call takes if it is not in tiles, by ComfyUI's estimate, and those that are free now."""
        import comfy.model_management

        vae: Any = self.vae
        needed: float = vae.memory_used_decode(self.samples.shape, vae.vae_dtype)
        return needed, comfy.model_management.get_free_memory(vae.device)
