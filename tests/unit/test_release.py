"""What a release needs: notes for the version, and no weights that are committed twice."""

from __future__ import annotations

import re
import subprocess

import check_weights
import pytest
import release_notes
from comfy_host.paths import ROOT

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_has_notes_that_a_user_reads_in_a_minute() -> None:
    version = re.search(r'^version = "(.+)"', PROJECT, re.MULTILINE)
    assert version
    found = release_notes.notes(version[1], CHANGELOG, PROJECT)
    assert found.count("### ") >= 2 and len(found.splitlines()) <= 42
    links = re.findall(r"\]\(([^)]+)\)", found)
    assert links and all(re.match(r"https://|#", link) for link in links), "a release has no files beside it"


@pytest.mark.parametrize(
    ("version", "changelog", "said"),
    [
        ("0.1.1", CHANGELOG, "another version"),
        ("0.1.0", "# Changelog\n", "no section"),
        ("0.1.0", "## [0.1.0] - unreleased\n\n- all\n", "no date"),
    ],
)
def test_what_does_not_fit_stops_the_release_with_a_sentence(version: str, changelog: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        release_notes.notes(version, changelog, 'version = "0.1.0"')


def test_no_weights_are_in_the_tree_twice() -> None:
    planted = "100644 aa 0\ta.safetensors\n100644 aa 0\tb.pt\n100644 bb 0\tc.safetensors\n100644 aa 0\td.py\n"
    assert check_weights.copies(planted) == [["a.safetensors", "b.pt"]]
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, text=True, stdout=subprocess.PIPE).stdout
    assert check_weights.copies(listed) == []
