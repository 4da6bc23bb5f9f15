"""What is said of weights that do not fit on the device; nothing where it does not matter."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from paceline.optimizers.in_comfyui.second_weights.moves import GIB, missing_weights


@pytest.mark.parametrize("dynamic", [False, True], ids=["moved", "dynamic"])
def test_weights_that_do_not_fit_are_said_with_what_helps(reads, dynamic):
    def model(loaded):
        return SimpleNamespace(
            model_size=lambda: 10 * GIB, loaded_size=lambda: loaded * GIB, is_dynamic=lambda: dynamic
        )

    assert missing_weights(model(9.9)) == ()
    reads(*missing_weights(model(5)))
