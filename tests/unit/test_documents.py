"""README and docs/*.md: links and anchors lead somewhere, and measured numbers are those of benchmarks/results."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from comfy_host.paths import ROOT
from made_examples import MADE, PACKAGE, VERSION
from sentences import sentences_of_page, too_long

RESULTS = ROOT / "docs" / "results.md"
EXAMPLES = ROOT / "example_workflows"
MEASURED = (RESULTS, ROOT / "docs" / "alternatives.md")
"""Pages whose sections name the files of results that their numbers are from."""
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "benchmarks" / "weights" / "README.md",
    EXAMPLES / "README.md",
]
HELP = sorted((ROOT / "web" / "docs").glob("*/en.md"))
OF_ANY_LENGTH = {ROOT / "README.zh.md", ROOT / "docs" / "TRUST.md", ROOT / "benchmarks" / "weights" / "README.md"}
"""Pages in a language without blanks, or that list what was tried or how weights were trained."""
LINK = re.compile(r'\]\(([^)\s]+)\)|<img src="([^"]+)"')
UNIT = re.compile(r"(-?\d+(?:\.\d+)?) ?(x(?! \d)|dB|%|s|MB)(?![\w])")
"""A number with a unit; in *512 x 512* the x is none."""
FIELDS = {
    "x": "speedup|less_work",
    "s": "seconds_m|first_image_seconds",
    "dB": "psnr|gain",
    "%": "attention|work_left|matching|estimate|inside|adding",
    "MB": "bytes",
}
"""What a number with this unit is called in the files; shares are written in percent, and bytes in millions."""
SCALE = {"%": 100, "MB": 1e-6}
BEFORE_UNIT = re.compile(r"(-?\d+\.\d+)(?:,| to| and) (?=-?\d+\.\d+ ?dB)")
"""The first of two numbers that share a unit: *57.3, 52.6 dB*."""


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|^ {4}.*?$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def measured(text: str) -> list[tuple[str, str]]:
    """The numbers with a unit that stand in ``text``, but for lines that name somebody else's measurement."""
    lines = [line for line in without_code(text).splitlines() if "](https:" not in line]
    found = [match.groups() for line in lines for match in UNIT.finditer(line)]
    return found + [(match[1], "dB") for line in lines for match in BEFORE_UNIT.finditer(line)]


def sections(text: str) -> Iterator[str]:
    yield from re.split(r"^##+ ", text, flags=re.MULTILINE)


def values(name: str) -> Iterator[tuple[str, float]]:
    """Every number of a file of results that a page may give, with its unit; of evaluations, the share left out too."""
    for row in json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]:
        numbers: dict[str, Any] = {**row, **(row.get("quality") or {})}
        for unit, fields in FIELDS.items():
            found = (value for field, value in numbers.items() if re.search(fields, field))
            yield from ((unit, SCALE.get(unit, 1) * value) for value in found if isinstance(value, (int, float)))
        if (steps := re.search(r"(\d+) steps", row["work"])) and numbers.get("evaluations"):
            yield "%", 100 * (1 - numbers["evaluations"] / int(steps[1]))


def rounds_to(value: float, number: str) -> bool:
    decimals = len(number.partition(".")[2])
    return abs(value - float(number)) <= 0.5001 * 10**-decimals


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(without_code(page.read_text(encoding="utf-8"))):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_each_number_of_a_page_of_results_is_in_the_files_that_its_section_names() -> None:
    checked = 0
    for section in (section for page in MEASURED for section in sections(page.read_text(encoding="utf-8"))):
        names = [anchor.replace("-", "_") for anchor in re.findall(r"RESULTS\.md#([\w-]+)\)", section)]
        known = [value for name in names for value in values(name)]
        for number, unit in measured(section):
            found = any(of == unit and rounds_to(value, number) for of, value in known)
            assert found, f"{number} {unit} is in none of {names}"
            checked += 1
    assert checked > 150


@pytest.mark.parametrize("page", [ROOT / "README.md", *HELP], ids=str)
def test_numbers_elsewhere_are_those_of_the_page_of_results(page: Path) -> None:
    """Of the help pages the pictures' distances only: other numbers there are examples and settings."""
    known = set(measured(RESULTS.read_text(encoding="utf-8")))
    found = measured(page.read_text(encoding="utf-8"))
    if page.name == "README.md":
        assert len(found) >= 15  # a table of seconds; all else stands on the page of results
    else:
        found = [(number, unit) for number, unit in found if unit == "dB"]
    assert [one for one in found if one not in known] == []


def test_each_file_of_results_supports_something() -> None:
    """A sentence on the page of results, a row of what was tried, or a rule in the code."""
    places = [*MEASURED, *(ROOT / "optimizers").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in places)
    unused = [
        path.stem
        for path in (ROOT / "benchmarks" / "results").glob("*.json")
        if f"RESULTS.md#{path.stem.replace('_', '-')})" not in text and path.name not in text
    ]
    assert unused == []


@pytest.mark.parametrize(
    "page",
    [page for page in (*PAGES, *HELP) if page not in OF_ANY_LENGTH],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_a_page_for_users_has_short_sentences(page: Path) -> None:
    assert too_long(sentences_of_page(page.read_text(encoding="utf-8"))) == []


def test_the_readme_is_short() -> None:
    for name in ("README.md", "README.zh.md"):
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 85


def test_what_git_fetches_is_what_the_registry_serves() -> None:
    """The folders in README's line are those that ``.comfyignore`` leaves."""
    left_out = set(re.findall(r"^/([\w.]+)/$", (ROOT / ".comfyignore").read_text("utf-8"), re.MULTILINE))
    tracked = subprocess.run(["git", "ls-tree", "-d", "--name-only", "HEAD"], cwd=ROOT, text=True, stdout=-1).stdout
    if not tracked:
        pytest.skip("this copy has no history")
    for name in ("README.md", "README.zh.md"):
        line = re.search(r"sparse-checkout set (.+)", (ROOT / name).read_text(encoding="utf-8"))
        assert line and line[1].split() == sorted(set(tracked.split()) - left_out)


def test_the_chinese_readme_has_the_same_numbers() -> None:
    """Those of the tables in the same order, so that none is in another row, and all others that are not versions."""
    readme, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
    number = re.compile(r"\d+(?:[.,]\d+)*")
    tables = [[number.findall(line) for line in text.splitlines() if line[:1] == "|"] for text in (readme, chinese)]
    assert tables[0] == tables[1]
    assert set(measured(readme)) == set(measured(chinese))
    times = [set(re.findall(r"[\d.]+ ms", text)) for text in (readme, chinese)]
    assert times[0] == times[1] and len(times[0]) == 2


def test_the_readme_says_what_the_trial_found() -> None:
    trust, *readmes = ((ROOT / name).read_text("utf-8") for name in ("docs/TRUST.md", "README.md", "README.zh.md"))
    tried = re.findall(r"^\| \[[^\]]+\]\(#[\w-]+\) \| ([\d,]+) (\w+) \| ([\d,]+) \|$", trust, re.MULTILINE)
    sums = [
        sum(int(row[column].replace(",", "")) for row in tried if (row[1] == "graphs") == graphs)
        for graphs in (True, False)
        for column in (0, 2)
    ]
    expected = [f"{number:,}" for number in sums]
    for text in readmes:
        tested = next(line for line in text.splitlines() if line.startswith(("**Tests**", "**测试**")))
        assert re.findall(r"\d[\d,]*\d|\d", tested) == expected


def test_the_readme_says_how_many_public_reports_were_tried() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    rows = [[*map(int, row)] for row in re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)]
    tried, failed, still = map(sum, zip(*rows, strict=True))
    assert tried > failed >= still
    for name, mark in (("README.md", "**Public reports**"), ("README.zh.md", "**公开的错误报告**")):
        said = (ROOT / name).read_text(encoding="utf-8").partition(mark)[2].partition("docs/reports.md")[0]
        assert re.findall(r"\d+", said) == [str(tried), str(still)]


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.stem
)
def test_issue_forms_are_as_github_reads_them(form: Path) -> None:
    """And what they ask for is there: programs, pages and targets of make."""
    text = form.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    assert content["name"] and content["description"]
    fields = [part for part in content["body"] if part["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) and all(
        field["attributes"]["label"] for field in fields
    )
    for page in re.findall(r"blob/main/([\w./]+\.md)", text):
        assert (ROOT / page).exists(), page
    for target in re.findall(r"`make ([\w-]+)`", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), target


def test_the_page_of_the_examples_names_each_of_them_and_where_it_is_from():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (?!Example|---)([^|]+?) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in EXAMPLES.glob("*.json"))
    assert f"{PACKAGE} {VERSION}" in page and "MIT License" in page
    for name, made in MADE.items():
        assert re.search(rf"^\| {re.escape(name)} \| [\d +]+ \| `{made.template}` \|", page, re.MULTILINE), name
