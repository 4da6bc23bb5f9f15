"""PSNR and SSIM against their reference implementation, and the pictures that a comparison shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paceline.measure.picture import (
    average,
    comparison_sheet,
    difference_gain,
    distances,
    no_picture,
    seed_change,
    to_8_bit,
)
from paceline.optimizers.core.errors import InvalidSetting
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
    found = average(distances(pictures, references))
    a, b = pictures[0].numpy(), references[0].numpy()
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    assert found.psnr == pytest.approx(peak_signal_noise_ratio(b, a, data_range=255), abs=1e-6)
    assert found.ssim == pytest.approx(structural_similarity(b, a, channel_axis=2, data_range=255, **options), abs=1e-6)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((a / 255.0 - b / 255.0) ** 2)))


def test_equal_and_tiny_pictures():
    pictures, references = noisy_pair(8, 30, 0.1)
    found = average(distances(pictures, references))
    assert found.ssim is None
    assert str(found) == f"PSNR {found.psnr:.1f} dB"
    same = average(distances(references, references))
    assert (same.rmse, same.psnr) == (0.0, None)
    assert str(same) == "the same to the last bit"


def test_pictures_of_two_sizes_are_refused():
    with pytest.raises(InvalidSetting, match="same number and size"):
        average(distances(torch.zeros(1, 8, 8, 3), torch.zeros(1, 8, 9, 3)))


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
    errors = [average(distances(draws[one], draws[other])).rmse ** 2 for one, other in pairs]
    assert seed_change([first, second], distances).rmse == pytest.approx(np.mean(errors) ** 0.5)


VERDICT = "1.34x faster (1.31 to 1.37); difference is visible, 1/9 of a seed change."


def pictures(height: int, width: int, batch: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.randint(0, 256, (batch, height, width, 3), generator=torch.Generator().manual_seed(1)).byte()
    return a, (a.int() + 5).clamp(0, 255).byte()


@pytest.mark.parametrize("size", [(64, 64), (32, 32), (768, 512), (300, 900), (900, 100)])
def test_everything_fits_into_the_picture(size):
    a, b = pictures(*size)
    sheet = comparison_sheet(a[0], b[0], [VERDICT, "word " * 80, "noise floor: another seed"])
    pixels = torch.frombuffer(bytearray(sheet.tobytes()), dtype=torch.uint8).view(sheet.height, sheet.width, 3)
    for edge in (pixels[:4], pixels[-4:], pixels[:, :4], pixels[:, -4:]):
        assert (edge == pixels[0, 0]).all(), "something touches the edge"
    assert sheet.width <= 3 * 512 + 4 * 16


def test_the_control_is_shown_beside():
    a, b = pictures(256, 256)
    third = (a.int() + 7).clamp(0, 255).byte()
    sheet = comparison_sheet(a[0], b[0], [VERDICT], control=("10 steps", third[0]))
    shown = torch.frombuffer(bytearray(sheet.tobytes()), dtype=torch.uint8).view(sheet.height, sheet.width, 3)
    top, left = 16 + 22, 16 + 3 * 272
    assert torch.equal(shown[top : top + 256, left : left + 256], third[0])


def test_small_differences_are_amplified_until_they_can_be_seen():
    grey = torch.full((1, 50, 50, 3), 100, dtype=torch.uint8)
    assert difference_gain(grey, grey) == 0
    assert [difference_gain(grey, grey + step) for step in (1, 3, 5, 40, 150)] == [64, 64, 32, 4, 1]
    spot = grey.clone()
    spot[0, 0, 0] = 255  # one bright spot does not hide the rest
    assert difference_gain(grey, spot + 1) == 64
