"""benchmarks/RESULTS.md says what the files in benchmarks/results say."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from comfy_host.paths import ROOT

FILES = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.fixture(scope="module")
def render():
    spec = importlib.util.spec_from_file_location("render_results", ROOT / "benchmarks" / "pages" / "render_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_up_to_date(render):
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert text == render.page(), "run python benchmarks/pages/render_results.py"


def test_every_row_is_there_with_its_machine_and_command(render):
    text = render.page()
    assert FILES
    for path in FILES:
        content = json.loads(path.read_text(encoding="utf-8"))
        part = render.section(path, render.common_words(FILES))
        assert part in text
        assert content["command"] in part
        assert content["hardware"]["cpu"] in part
        assert content["versions"]["torch"] in part
        for row in content["rows"]:
            assert f"| {row['name']} |" in part
            assert f"| **{row['work']}** |" in part


def test_what_a_word_means_stands_in_its_part_or_above_all_of_them(render):
    text = render.page()
    top = text.split("\n## ")[0]
    for path in FILES:
        part = render.section(path, render.common_words(FILES))
        for name, note in (json.loads(path.read_text(encoding="utf-8")).get("notes") or {}).items():
            assert any(f"- *{name.replace('_', ' ')}*: {note}\n" in place for place in (part, top))


WITHOUT_ROOF = {"nothing is timed here", "the operations were not counted"}


def read_tables(text):
    """The rows of the Markdown tables in ``text``, as dicts with the ``work`` that stands above each."""
    rows, head, work = [], [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if line.startswith("| variant |"):
            head = cells
        elif line.startswith("| **"):
            work = cells[0].strip("*")
        elif line.startswith("| "):
            rows.append({"work": work, **dict(zip(head, cells, strict=True))})
    return rows


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_share_of_the_roof_is_in_its_row_and_a_note_says_what_it_is_or_why_there_is_none(render, path):
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    part = render.section(path)
    shares = {(row["work"], row["name"]): row.get("roof_share") for row in rows}
    shown = read_tables(part)
    assert len(shown) == len(rows)
    for line in shown:
        share = shares[line["work"], line["variant"]]
        assert line.get("of the roof", "") == ("" if share is None else f"{share:.0%}")
    (note,) = re.findall(r"^- \*(?:of the )?roof\*: (.+)$", part, re.MULTILINE)
    assert (note in WITHOUT_ROOF) == all(share is None for share in shares.values())


def test_numbers_are_written_for_people(render):
    rows = [
        {"name": "old", "work": "w", "seconds_median": 2.0, "seconds_min": 1.5, "seconds_max": 3.25, "speedup": 1.0,
         "peak_memory_bytes": 3 * 2**20, "quality": {"psnr": 31.23456}, "roof_share": None, "rounds": 3},
        {"name": "new", "work": "w", "seconds_median": 0.0123, "seconds_min": 0.01, "seconds_max": 0.5, "speedup": 1.5,
         "peak_memory_bytes": 2**19, "quality": {}, "roof_share": None, "rounds": 3},
    ]  # fmt: skip
    assert render.table(rows) == [
        "| variant | time | speed-up | peak memory | psnr |",
        "|---|---:|---:|---:|---:|",
        "| **w** | | | | |",
        "| old | 2.00 s (1.50 s to 3.25 s) | 1.00x | 3.0 MiB | 31.23 |",
        "| new | 12.3 ms (10.0 ms to 500 ms) | 1.50x | 0.5 MiB |  |",
    ]
