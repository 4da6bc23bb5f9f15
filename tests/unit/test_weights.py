"""What is said of weights that were moved: seconds, the cause, and what helps; nothing where it does not matter."""

from __future__ import annotations

import pytest
from paceline.optimizers.hosts.comfyui.weights.moves import GIB, WeightMoves

SMALLER = "Quantize int8, or a file in fewer bits, makes the model smaller"
FITS = {"resident": 10 * GIB, "total": 10 * GIB}
HALF = {"resident": 5 * GIB, "total": 10 * GIB}


@pytest.mark.parametrize(
    ("moves", "lines"),
    [
        (WeightMoves(0.05, 0.01, **FITS), []),
        (WeightMoves(0.5, 0.01, **FITS), []),  # half a second of a minute
        (WeightMoves(41.0, 0.01, **FITS), ["loading weights before the first step took 41 s of 60 s"]),
        (
            WeightMoves(0.0, 9.0, **FITS, others=("AutoencoderKL",)),
            [
                "the next run loaded weights again, for 9 s: AutoencoderKL took their place on the device. "
                f"{SMALLER}, so that both fit"
            ],
        ),
        (
            WeightMoves(0.0, 9.0, **FITS, others=("AutoencoderKL",), second_copy=True),
            [
                "the next run loaded weights again, for 9 s: Compile UNet has made a second copy of them, and both do "
                "not fit. Start ComfyUI with --disable-dynamic-vram, or take Compile UNet off"
            ],
        ),
        (WeightMoves(0.0, 9.0, **FITS), ["the next run loaded weights again, for 9 s: ComfyUI does not tell why"]),
        (
            WeightMoves(0.0, 9.0, **HALF),
            [
                f"the next run loaded weights again, for 9 s: they do not fit on the device. {SMALLER}",
                "5 of 10 GiB of weights do not fit on the device, and they are moved again in each step: " + SMALLER,
            ],
        ),
        (
            WeightMoves(0.0, 0.0, **HALF, dynamic=True),
            [
                "5 of 10 GiB of weights do not fit on the device, and dynamic VRAM moves them again in each step: "
                + SMALLER
            ],
        ),
    ],
)
def test_what_is_said_of_a_run_of_a_minute(moves, lines):
    assert list(moves.lines(60.0)) == lines
