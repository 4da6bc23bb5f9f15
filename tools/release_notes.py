"""Print the section of CHANGELOG.md for a version, which must be that of pyproject.toml and have a date.

python tools/release_notes.py 0.1.0

Links to files of the repository become addresses: the page of a release and the registry are outside of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = "https://github.com/paceline/ComfyUI-Paceline/blob"


def notes(version: str, changelog: str, project: str) -> str:
    """Return the notes of a release; exits with a sentence where something does not fit."""
    if f'version = "{version}"' not in project:
        sys.exit(f"pyproject.toml has another version than {version}.")
    section = re.search(rf"^## \[{re.escape(version)}\] - (\S+)\n(.+?)(?=^## |^\[[^]]+\]: |\Z)", changelog, re.M | re.S)
    if section is None:
        sys.exit(f"CHANGELOG.md has no section [{version}].")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", section[1]):
        sys.exit(f"CHANGELOG.md has no date for {version}: it says {section[1]!r}.")
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({FILES}/v{version}/", section[2].strip())


if __name__ == "__main__":
    print(notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text("utf-8"), (ROOT / "pyproject.toml").read_text("utf-8")))
