"""Whatever is in a file or a text that a user may bring: it is read, or refused with a sentence; never a raw error.

``PACELINE_FUZZ=5000`` (`make fuzz`) tries so many examples of each.
"""

from __future__ import annotations

import json
import math
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from fuzzing import documents, fuzzed
from hypothesis import given
from hypothesis import strategies as st
from paceline.core.errors import PacelineError
from paceline.core.kernel_times import KeptTimes
from paceline.optimizers.quantization.kernels import ChunkedIntMM
from paceline.optimizers.quantization.layer_times import Shape, Timings
from paceline.optimizers.quantization.rounding import Int8Weight, with_row_scales
from paceline.optimizers.quantization.settings import QuantizationSettings
from paceline.workbench.recipe import Recipe, load_recipe
from paceline.workbench.sweep.axes import cells_of, parse_axes


def changed(document: dict, name: str = "") -> st.SearchStrategy:
    """Valid documents with any of their values replaced, missing, or one more."""
    keys = st.sampled_from([*document, "unknown"])

    def change(changes):
        made = dict(document)
        for key, value in changes:
            if value == "missing":
                made.pop(key, None)
            else:
                made[key] = value
        return made

    return st.lists(st.tuples(keys, st.one_of(st.just("missing"), documents)), max_size=3).map(change)


RECIPE = {
    "paceline_recipe": 1,
    "name": "mine",
    "description": "",
    "made_on": {"device": "cpu"},
    "steps": [{"node": "PacelineApplyToMe", "inputs": {"ratio": 0.5}}],
}
NESTED = ["[" * 100_000, '{"a":' * 100_000, '{"paceline_recipe": ' + "9" * 5000 + "}"]


@fuzzed
@given(st.one_of(st.text(), documents.map(json.dumps), changed(RECIPE).map(json.dumps)))
def test_recipes_and_presets(text):
    try:
        recipe = Recipe.from_json(text)
    except PacelineError:
        return
    assert Recipe.from_json(recipe.to_json()).steps == recipe.steps or "NaN" in text


@pytest.mark.parametrize("text", NESTED, ids=["lists", "objects", "digits"])
def test_a_recipe_without_end(text):
    with pytest.raises(PacelineError):
        Recipe.from_json(text)


@fuzzed
@given(st.one_of(st.binary(max_size=200), st.just(b"{" * (1 << 21))))
def test_files_of_presets(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "preset.json")
        path.write_bytes(content)
        with pytest.raises(PacelineError) as refused:
            load_recipe(path)
        assert folder not in str(refused.value)


LINES = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.builds(
            "{} = {}".format,
            st.sampled_from(["ApplyToMe.ratio", "Compile UNet", "compile unet", "x.y"]),
            st.text(alphabet="0123456789.,x \"'[]{}eE+-offn", max_size=40),
        ),
    ),
    max_size=5,
).map("\n".join)


@fuzzed
@given(LINES)
def test_grids(text):
    """One that kept the server busy would run into pytest's own limit."""
    try:
        axes = parse_axes(text, str.lower, lambda name, value: None)
    except PacelineError:
        return
    cells = cells_of(axes)
    assert 0 < len(cells) <= 10_000 and all(cell.keys() <= axes.keys() for cell in cells)


PATTERNS = st.text(alphabet="ab.,*?_- ^|[(", max_size=30)


@fuzzed
@given(st.one_of(PATTERNS, st.text(max_size=40)), st.text(alphabet="ab.0_", max_size=12))
def test_patterns_of_names_match_what_fnmatch_matches(text, name):
    try:
        found = QuantizationSettings(include=text).is_included(name)
    except PacelineError:
        return
    parts = [part.strip() for part in text.split(",") if part.strip()]
    shell = (part if {"*", "?"} & {*part} else f"*{part}*" for part in parts)
    assert found == any(fnmatchcase(name, part) for part in shell)


TIMES = st.one_of(documents, st.dictionaries(st.just("machine"), st.dictionaries(st.just("8x8x8"), documents)))


@fuzzed
@given(st.one_of(st.one_of(TIMES.map(json.dumps), st.sampled_from(NESTED)).map(str.encode), st.binary(max_size=50)))
def test_kept_timings(content):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timings.json")
        file.write_bytes(content)
        kept = KeptTimes(file)
        found = kept.get("machine", "8x8x8", lambda: [2.0, 1.0])
        assert len(found) > 0 and all(0 < value < math.inf for value in found)
        kept.get("machine", "new", lambda: [1.0])
        kept.save()
        assert KeptTimes(file).get("machine", "new", lambda: [5.0]) == [1.0]


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0, 3.0]])
def test_kept_timings_of_another_number_of_functions(tmp_path, times):
    file, shape = tmp_path / "timings.json", Shape(32, 32, 32)
    first = Timings(torch.device("cpu"), torch.float32, file)
    first.time(ChunkedIntMM(), shape)
    first.save()
    (section,) = json.loads(file.read_text())
    file.write_text(json.dumps({section: {shape.key: times}}))
    assert Timings(torch.device("cpu"), torch.float32, file).time(ChunkedIntMM(), shape).speedup > 0


SCALES = st.one_of(
    st.sampled_from([float("nan"), float("inf"), 0.0, -1.0, 1e-30, 1e30]), st.floats(width=32, allow_nan=True)
)


@fuzzed
@given(
    shape=st.one_of(st.just((4, 256)), st.tuples(st.integers(0, 5), st.integers(0, 300))),
    dtype=st.sampled_from([torch.int8, torch.int8, torch.uint8, torch.float32, torch.bool]),
    scale_shape=st.sampled_from([(), (1,), (4,), (4, 1), (1, 4), (4, 4), (5, 1), (0,)]),
    scale=SCALES,
    rotation=st.one_of(st.integers(-2, 600), st.sampled_from([2**30, 2**63])),
)
def test_int8_weights_of_others(shape, dtype, scale_shape, scale, rotation):
    """What passes the check can be computed with; all else is refused."""
    values, scales = torch.ones(shape).to(dtype), torch.full(scale_shape, scale)
    try:
        weight = with_row_scales(Int8Weight(values, scales, rotation), 4, 256)
    except PacelineError:
        return
    out = ChunkedIntMM().linear(torch.randn(3, 256), weight, None)
    assert out.shape == (3, 4) and (abs(scale) > 1e30 or out.isfinite().all())
