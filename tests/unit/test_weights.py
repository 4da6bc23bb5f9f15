"""What is said of weights that were moved: seconds, the cause, and what helps; nothing where it does not matter."""

from __future__ import annotations

from paceline.optimizers.in_comfyui.second_weights.moves import GIB, WeightMoves

FITS = {"resident": 10 * GIB, "total": 10 * GIB}
HALF = {"resident": 5 * GIB, "total": 10 * GIB}
SAID = [
    WeightMoves(41.0, 0.01, **FITS),
    WeightMoves(0.0, 9.0, **FITS, others=("AutoencoderKL",)),
    WeightMoves(0.0, 9.0, **FITS, others=("AutoencoderKL",), second_copy=True),
    WeightMoves(0.0, 9.0, **FITS),
    WeightMoves(0.0, 9.0, **HALF),
    WeightMoves(0.0, 0.0, **HALF, dynamic=True),
]


def test_what_is_said_of_a_run_of_a_minute(reads):
    assert not [*WeightMoves(0.05, 0.01, **FITS).lines(60.0), *WeightMoves(0.5, 0.01, **FITS).lines(60.0)]
    for moves in SAID:
        reads("\n".join(moves.lines(60.0)))
