"""Patterns of names: what they match is what ``re`` matches, in time that no pattern can stretch."""

from __future__ import annotations

import random
import re
import time

import pytest
from paceline import QuantizeInt8
from paceline.core.errors import InvalidSetting
from paceline.core.name_pattern import name_pattern

NAMES = (
    "",
    "input_blocks.1.1.transformer_blocks.0.attn1.to_q",
    "input_blocks.12.1.transformer_blocks.10.ff.net.0.proj",
    "middle_block.1.proj_in",
    "double_blocks.3.img_attn.qkv",
    "aab.a1-b",
    "out.2",
)
WRITTEN = (
    ".", "", "attn", "[^0-9]+$", ".*attn.*",
    "attn|ff", r"ff\.net", "attn1", r"attentions\.", "proj|time", "norm|time|proj", "embed|^proj_out|norm",
    r"attn|mlp|ff|linear[12]|attention\.|feed_forward",
    r"^(?!input_blocks\.[12]\.)", "^(?!.*(attn|ff))", r"to_(q|k|v)$",
    r"input_blocks\.\d+\..*(attn[12]|ff)\b", "(?:a|b)x", r"^input_blocks\.1.?\.",
)  # fmt: skip
PARTS = ("a", "b", "1", r"\.", ".", "[a-c]", "[^a]", r"\d", r"\w", "_", "to", "^", "$", r"\b")


@pytest.mark.parametrize("pattern", WRITTEN)
def test_what_people_write_is_read_as_before(pattern):
    for name in NAMES:
        assert name_pattern(pattern)(name) == (re.search(pattern, name) is not None), name


def test_random_patterns_match_what_re_matches():
    draw = random.Random(3)

    def pattern(depth):
        parts = []
        for _ in range(draw.randint(0, 4)):
            if depth < 3 and draw.random() < 0.25:
                parts.append(draw.choice(("(", "(?:", "(?!", "(?=")) + pattern(depth + 1) + ")")
            else:
                part = draw.choice(PARTS)
                parts.append(
                    part if part in ("^", "$", r"\b", "to") else part + draw.choice(("", "", "*", "+", "?", "*?"))
                )
        return draw.choice(("", "", "|" + draw.choice(PARTS))).join(("".join(parts), ""))

    found = 0
    for _ in range(4000):
        text = pattern(0)
        name = "".join(draw.choice("aabc1._to") for _ in range(draw.randint(0, 12)))
        expected = re.search(text, name) is not None
        assert name_pattern(text)(name) == expected, (text, name)
        found += expected
    assert 1000 < found < 3800


@pytest.mark.parametrize(
    "pattern",
    ["^(([a-z0-9_.]+)+)+!$", "(a|a)*b", "(a*)*", "a{1,9}", r"(a)\1", "(?P<n>a)", "(?<=a)b", "a" * 2001,
     "(" * 30 + ")" * 30,
     "(", ")", "[", "*a", "[z-a]", "(?i)a", "a**"],
)  # fmt: skip
def test_everything_else_is_refused_in_one_sentence(pattern):
    for name in ("include", "exclude"):
        with pytest.raises(
            InvalidSetting, match=f"{name} is .*, which is not a regular expression .*Name layers by parts"
        ):
            QuantizeInt8(**{name: pattern})


@pytest.mark.parametrize(
    "pattern", [".*" * 999 + "!", "(a|a|.)" * 280 + "!", r"(?!(?!.*a.*b.*!))" * 100 + "!", "[a-z]+.?" * 240]
)
def test_no_pattern_takes_long(pattern):
    settings, name = QuantizeInt8(exclude=pattern), "a." * 100
    begun = time.process_time()
    settings.is_excluded(name)
    assert time.process_time() - begun < 0.1
