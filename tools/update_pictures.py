"""Take the pictures of the repository anew: ``python tools/update_pictures.py``.

The thumbnails of the example workflows, the nodes in the help pages, and the README's pictures are screenshots of
ComfyUI's real page in Chromium, taken by the browser tests on their way. They show what was measured while they were
taken, so nothing else should run on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "test_compare.py::test_the_graph_shows_what_was_done_and_what_it_was_worth",
    "test_faster.py::test_one_click_with_a_trained_model",
    "test_nodes.py::test_nodes_and_their_help_speak_the_language_of_the_frontend[en]",
    "test_speed.py::test_a_profile_is_shown_in_the_node_and_in_the_tab",
    "test_sweep.py::test_the_plot_has_every_cell_the_plain_model_and_the_limit",
    "test_templates.py::test_a_template_opens",
)
"""Those that take pictures. With ``PACELINE_PICTURES`` they measure longer, which other tests do not expect."""


def main(names: list[str]) -> int:
    """Run the browser tests that take pictures, or only those with one of the names in theirs."""
    chosen = [test for test in TESTS if not names or any(name in test for name in names)]
    if not chosen:
        print("None of these tests has that name:", *TESTS, sep="\n")
        return 1
    tests = [str(ROOT / "tests" / "browser" / test) for test in chosen]
    environment = os.environ | {"PACELINE_PICTURES": "1", "CI": "1"}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
