"""Things that come over a link and are not what it says."""

from __future__ import annotations

from typing import Any

import torch


class _Strange:
    """An object of another pack's class with the attribute that everybody looks at first."""

    model = None
    samples = "no tensor"


WRONG: dict[str, Any] = {
    "none": None,
    "text": "a text",
    "number": 7,
    "list": [],
    "nested": [[None, {}]],
    "dict": {},
    "samples": {"samples": None},
    "nan": {"samples": torch.full((1, 4, 8, 8), float("nan"))},
    "one_axis": {"samples": torch.zeros(4)},
    "no_batch": {"samples": torch.zeros(0, 4, 8, 8)},
    "one_pixel": {"samples": torch.zeros(1, 4, 1, 1)},
    "channels": {"samples": torch.zeros(1, 5, 8, 8)},
    "tensor": torch.zeros(1, 4, 8, 8),
    "strange": _Strange(),
}
