"""PSNR and SSIM against their reference implementation, and the pictures that they are measured on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paceline.core.errors import InvalidSetting
from paceline.workbench.measurement.quality import compare_pictures, distances, no_picture, seed_change, to_8_bit
from skimage.metrics import peak_signal_noise_ratio, structural_similarity


def noisy_pair(height: int, width: int, noise: float, batch: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Smooth pictures and their noisy copies, uint8 ``[batch, height, width, 3]``."""
    generator = torch.Generator().manual_seed(height * width)
    coarse = torch.rand(batch, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").movedim(1, -1)
    rough = smooth + noise * torch.randn(smooth.shape, generator=generator)
    return to_8_bit(rough), to_8_bit(smooth)


@pytest.mark.parametrize(("height", "width", "noise"), [(64, 64, 0.01), (37, 53, 0.1), (11, 90, 0.5), (99, 16, 0.002)])
def test_psnr_and_ssim_are_those_of_scikit_image(height, width, noise):
    pictures, references = noisy_pair(height, width, noise)
    found = compare_pictures(pictures, references)
    a, b = pictures[0].numpy(), references[0].numpy()
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    assert found.psnr == pytest.approx(peak_signal_noise_ratio(b, a, data_range=255), abs=1e-6)
    assert found.ssim == pytest.approx(structural_similarity(b, a, channel_axis=2, data_range=255, **options), abs=1e-6)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((a / 255.0 - b / 255.0) ** 2)))


def test_a_batch_has_the_mean_error_and_the_mean_similarity():
    pictures, references = noisy_pair(32, 40, 0.1, batch=3)
    pictures[1] = references[1]
    found = compare_pictures(pictures, references)
    single = [compare_pictures(pictures[i : i + 1], references[i : i + 1]) for i in range(3)]
    assert single[1].psnr is None
    assert found.rmse**2 == pytest.approx(sum(one.rmse**2 for one in single) / 3)
    assert found.psnr == pytest.approx(-20 * np.log10(found.rmse))
    assert found.ssim == pytest.approx(sum(one.ssim for one in single) / 3)


def test_equal_and_tiny_pictures():
    pictures, references = noisy_pair(8, 30, 0.1)
    found = compare_pictures(pictures, references)
    assert found.ssim is None
    assert str(found) == f"PSNR {found.psnr:.1f} dB"
    same = compare_pictures(references, references)
    assert (same.rmse, same.psnr) == (0.0, None)
    assert str(same) == "the same to the last bit"


def test_pictures_of_two_sizes_are_refused():
    with pytest.raises(InvalidSetting, match="same number and size"):
        compare_pictures(torch.zeros(1, 8, 8, 3), torch.zeros(1, 8, 9, 3))


def test_bytes_are_those_that_comfyui_saves():
    images = torch.rand(1, 16, 16, 3, generator=torch.Generator().manual_seed(0)) * 1.4 - 0.2
    expected = np.clip(255.0 * images.numpy(), 0, 255).astype(np.uint8)  # what its SaveImage node does
    assert np.array_equal(to_8_bit(images).numpy(), expected)
    assert to_8_bit(torch.tensor([float("nan"), float("inf"), -1.0])).tolist() == [0, 255, 0]


def test_what_is_no_picture_is_found_in_a_batch_and_named():
    pictures = noisy_pair(16, 16, 0.1, batch=3)[0]
    assert no_picture("The image", pictures) == ""
    flat, finite = pictures.clone(), torch.tensor([True, True, False])
    flat[1] = 7
    assert no_picture("The image", flat) == "The image 2 of 3 is one flat colour"
    assert no_picture("The image", flat[1:2]) == "The image is one flat colour"
    assert no_picture("The image", pictures, finite).startswith("The image 3 of 3 has values that are not numbers")


def test_seed_changes_are_those_of_all_pairs_with_the_same_prompt():
    draws = [noisy_pair(16, 16, 0.1 * number, batch=2)[0] for number in range(4)]
    first, second = draws[:3], [draws[3], draws[0]]
    pairs = [(0, 1), (0, 2), (1, 2), (3, 0)]
    errors = [compare_pictures(draws[one], draws[other]).rmse ** 2 for one, other in pairs]
    assert seed_change([first, second], distances).rmse == pytest.approx(np.mean(errors) ** 0.5)
