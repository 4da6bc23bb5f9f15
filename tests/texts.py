"""Texts that people read, all of them in ``texts.json``: a test names what it says, `make texts` writes how.

A test takes the fixture ``reads`` and gives it what it reads, in order: ``reads(summary.headline)``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_suffix(".json")
KNOWN: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
WRITTEN: dict[str, list[str]] = {}


class Reads:
    """What one test reads."""

    def __init__(self, key: str, write: bool) -> None:
        self.expected = None if write else KNOWN.get(key, [])
        self.told: list[str] = WRITTEN.setdefault(key, []) if write else []

    def __call__(self, *texts: object) -> None:
        """Compare texts with those of the file, or keep them for it."""
        for text in map(str, texts):
            place = len(self.told)
            self.told.append(text)
            if self.expected is not None:
                expected = self.expected[place] if place < len(self.expected) else "nothing"
                assert text == expected, f"{text!r} is not {expected!r}: run `make texts`, and read the difference"

    def refused(self, kind: type[Exception], function: Callable[..., object], *args: Any, **inputs: Any) -> None:
        """The same for the sentence with which a call is refused."""
        with pytest.raises(kind) as error:
            function(*args, **inputs)
        self(error.value)


@pytest.fixture
def reads(request: pytest.FixtureRequest) -> Reads:
    """Hold what the test reads against ``texts.json``."""
    return Reads(f"{request.path.stem}::{request.node.name}", request.config.getoption("--write-texts"))


def write(files: set[str]) -> None:
    """Write what the tests of these files have read; texts of files that are gone are dropped."""
    there = {path.stem for path in FILE.parent.rglob("test_*.py")} - files
    kept = {key: texts for key, texts in KNOWN.items() if key.split("::")[0] in there}
    text = json.dumps(dict(sorted((kept | WRITTEN).items())), indent=1, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")
