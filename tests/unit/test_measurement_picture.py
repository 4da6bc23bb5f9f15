"""The picture that a comparison shows."""

from __future__ import annotations

import pytest
import torch
from paceline.workbench.measurement.picture import _PAPER, comparison_sheet, difference_gain

VERDICT = "1.34x faster (1.31 to 1.37); difference is 1/9 of a seed change."


def pictures(height: int, width: int, batch: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.randint(0, 256, (batch, height, width, 3), generator=torch.Generator().manual_seed(1)).byte()
    return a, (a.int() + 5).clamp(0, 255).byte()


@pytest.mark.parametrize("size", [(64, 64), (32, 32), (768, 512), (300, 900), (900, 100)])
def test_everything_fits_into_the_picture(size):
    sheet = comparison_sheet(*pictures(*size), VERDICT, ["word " * 80, "noise floor: another seed"])
    pixels = torch.frombuffer(bytearray(sheet.tobytes()), dtype=torch.uint8).view(sheet.height, sheet.width, 3)
    paper = torch.tensor(_PAPER, dtype=torch.uint8)
    for edge in (pixels[:4], pixels[-4:], pixels[:, :4], pixels[:, -4:]):
        assert (edge == paper).all(), "something touches the edge"
    assert sheet.width <= 3 * 512 + 4 * 16


def test_the_control_is_shown_beside_with_its_own_difference():
    a, b = pictures(256, 256)
    third = (a.int() + 7).clamp(0, 255).byte()
    sheet = comparison_sheet(a, b, VERDICT, control=("10 steps", third))
    shown = torch.frombuffer(bytearray(sheet.tobytes()), dtype=torch.uint8).view(sheet.height, sheet.width, 3)
    top, left = 16 + 25, 16 + 3 * 272
    assert torch.equal(shown[top : top + 256, left : left + 256], third[0])
    difference = ((a[0].int() - third[0].int()).abs() * 32).clamp(max=255)
    assert torch.equal(shown[top : top + 256, left + 272 : left + 528].int(), difference)


def test_small_differences_are_amplified_until_they_can_be_seen():
    grey = torch.full((1, 50, 50, 3), 100, dtype=torch.uint8)
    assert difference_gain(grey, grey) == 0
    assert [difference_gain(grey, grey + step) for step in (1, 3, 5, 40, 150)] == [64, 64, 32, 4, 1]
    spot = grey.clone()
    spot[0, 0, 0] = 255  # one bright spot does not hide the rest
    assert difference_gain(grey, spot + 1) == 64
