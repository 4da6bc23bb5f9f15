"""How far two pictures are apart: PSNR and SSIM, by scikit-image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity


class Distance(NamedTuple):
    """Distance of two pictures, or the mean over several pairs.

    Attributes:
        psnr: peak signal-to-noise ratio in dB; infinite for equal pictures.
        ssim: structural similarity, 1 for equal pictures.
    """

    psnr: float
    ssim: float


def distance(picture: Image.Image, reference: Image.Image) -> Distance:
    """Compare two RGB pictures of the same size."""
    a, b = (np.asarray(image.convert("RGB")) for image in (picture, reference))
    if np.array_equal(a, b):
        return Distance(math.inf, 1.0)
    return Distance(
        float(peak_signal_noise_ratio(b, a, data_range=255)),
        float(structural_similarity(b, a, channel_axis=2, data_range=255)),
    )


def mean_distance(pictures: Sequence[Image.Image], references: Sequence[Image.Image]) -> Distance:
    """Average over pairs; the PSNR by its mean square error, so that one equal pair does not make it infinite."""
    pairs = [distance(a, b) for a, b in zip(pictures, references, strict=True)]
    error = fmean(0.0 if math.isinf(pair.psnr) else 10 ** (-pair.psnr / 10) for pair in pairs)
    psnr = math.inf if error == 0.0 else -10 * math.log10(error)
    return Distance(psnr, fmean(pair.ssim for pair in pairs))
