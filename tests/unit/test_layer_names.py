"""Which layers ``include`` and ``exclude`` of Quantize int8 name, and that no text of theirs takes long."""

from __future__ import annotations

import time

import pytest
from paceline import QuantizeInt8
from paceline.core.errors import InvalidSetting

NAMES = (
    "time_embed.0",
    "input_blocks.1.1.transformer_blocks.0.attn1.to_q",
    "input_blocks.12.1.transformer_blocks.10.attn2.to_k",
    "input_blocks.12.1.transformer_blocks.10.ff.net.0.proj",
    "double_blocks.3.img_attn.qkv",
)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []), (" , ", []), ("*", [0, 1, 2, 3, 4]),
        ("attn", [1, 2, 4]), ("attn2, ff.net", [2, 3]), ("blocks.1.", [1]), ("Attn", []),
        ("*.attn2.*, time_embed*", [0, 2]), ("attn2.*", []), ("*.attn?.to_q", [1]), ("*proj,\n*qkv", [3, 4]),
    ],
)  # fmt: skip
def test_names_and_shell_patterns(text, places):
    settings = QuantizeInt8(include=text, exclude=text)
    assert [place for place, name in enumerate(NAMES) if settings.is_included(name)] == places
    assert [place for place, name in enumerate(NAMES) if settings.is_excluded(name)] == places


@pytest.mark.parametrize("name", ["include", "exclude"])
@pytest.mark.parametrize(
    "text", ["attn2|ff", r"ff\.net", "^time", "attn[12]", "(?!a)", "a+", "a{2}", "out$", "a" * 10_001]
)
def test_regular_expressions_are_refused_with_the_new_form(name, text):
    with pytest.raises(InvalidSetting, match=rf"{name} is '.*not a list of layer names.* \*\.attn2\.\*, time_embed\*"):
        QuantizeInt8(**{name: text})


@pytest.mark.parametrize(
    "part", ["*a", "*?a", "*a*,", "a,", "?", "*", "*.*_*", "*t*o*_*x,", "*" + "?" * 400 + "q"]
)  # fmt: skip
def test_no_text_takes_long(part):
    begun = time.process_time()
    settings = QuantizeInt8(exclude=(part * 10_000)[:10_000])
    for place in range(1000):  # a large model has so many layers
        settings.is_excluded(f"input_blocks.1.1.transformer_blocks.{place}.attn1.to_out.0")
    assert time.process_time() - begun < 5
