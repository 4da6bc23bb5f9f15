"""Choices and numbers of the nodes that change a model: whatever a link brings, one sentence and nothing attached."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paceline.core.errors import PacelineError

NODES = ["ApplyToMe", "CompileUNet", "FuseQKV", "ModelPrecision", "QuantizeInt8", "SetAttentionProcessor"]
WRONG: list[Any] = ["../x", "os.system", "x\0", None, float("nan"), -(10**9), ["a"], {}]


@pytest.mark.parametrize("name", NODES)
def test_no_choice_and_no_number_takes_what_is_not_on_its_list(studio, name):
    from comfy_api.latest import io

    node = studio.nodes[f"Paceline{name}"]
    inputs = node.define_schema().inputs
    defaults = {entry.id: entry.default for entry in inputs if getattr(entry, "default", None) is not None}
    if name == "ApplyToMe":
        defaults["preset"] = "custom"  # else a preset's values take the place of these
    for entry in inputs:
        for wrong in WRONG if isinstance(entry, (io.Combo.Input, io.Int.Input, io.Float.Input)) else []:
            with pytest.raises(PacelineError), torch.inference_mode():
                node.execute(**{**defaults, "model": studio.model, entry.id: wrong})
                pytest.fail(f"{entry.id} took {wrong!r}")
