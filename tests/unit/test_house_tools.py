"""The scripts that compare two commits: what a reader opens, and when images count as the same."""

from __future__ import annotations

import time

import pytest
import torch
from house.drawing import digest
from house.import_closure import Pack
from house.same_images import verdict
from house.work_clock import Operators, WorkClock, install

FILES = {
    "nodes/merge.py": "from typing import TYPE_CHECKING\nfrom ..parts import merge, keep\n"
    "if TYPE_CHECKING:\n    from ..unread import Never\n"
    "def later():\n    from ..late import now\n    import torch\n",
    "parts/__init__.py": "from .merging import merged as merge\nfrom .keeping import *\nkeep = 1\n",
    "parts/merging.py": "from importlib import import_module\nfrom . import helper\n"
    "def merged():\n    return import_module('..named', __package__)\n",
    "parts/helper.py": "from .merging import merged\n",
    "parts/keeping.py": "def other(): ...\n",
    "named.py": "",
    "late.py": "def now():\n    hidden = 1\n",
    "unread.py": "Never = 1\n",
}


@pytest.fixture
def pack(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Pack(tmp_path)


def opened(pack):
    return {str(file.path.relative_to(pack.root)) for file in pack.closure(("nodes", "merge"))}


def test_a_reader_opens_what_defines_a_name_and_what_that_imports(pack):
    assert opened(pack) == FILES.keys() - {"unread.py"}  # keep is defined in an __init__, which is opened for that


def test_a_file_that_only_hands_a_name_on_is_not_opened(pack):
    (pack.root / "nodes/merge.py").write_text("from ..parts import merge\n")
    assert opened(pack) == {"nodes/merge.py", "parts/merging.py", "parts/helper.py", "named.py"}


def test_what_counts_as_the_same():
    case = {"image": "a", "plain": "b", "restored": "b"}
    assert verdict(case, dict(case)) == "same"
    assert verdict(case, None) == verdict(None, case) == "missing"
    assert verdict(case, {**case, "image": "c"}) == "DIFFERENT"
    assert verdict(case, {**case, "plain": "c", "restored": "c"}) == "DIFFERENT without the technique"
    assert verdict(case, {**case, "restored": "c"}) == "NOT RESTORED"
    assert verdict({**case, "graphs": 1}, {**case, "graphs": 2}) == "same; graphs 1 -> 2"


def test_a_digest_sees_every_bit_the_shape_and_the_dtype():
    values = torch.arange(6.0).reshape(2, 3)
    changed = values.clone()
    changed.view(torch.int32)[1, 2] ^= 1
    others = (changed, values.reshape(3, 2), values.double(), values.bfloat16(), -0.0 * values)
    assert len({digest(other) for other in (values, *others)}) == 6
    assert digest(values.t().contiguous().t()) == digest(values)


def test_the_clock_counts_products_only_while_it_is_on(monkeypatch):
    for name in ("perf_counter", "perf_counter_ns", "thread_time"):
        monkeypatch.setattr(time, name, getattr(time, name))  # puts them back afterwards
    install()
    x, weight = torch.ones(32, 16), torch.ones(8, 16)
    with WorkClock(), Operators() as operators:
        begun = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        middle = time.perf_counter()
        torch._int_mm(x.char(), weight.char().t())
        end = time.perf_counter()
    assert middle - begun == pytest.approx(4 * (end - middle)) and end > middle
    assert "_int_mm 1" in str(operators)
    assert time.perf_counter() > end + 1
