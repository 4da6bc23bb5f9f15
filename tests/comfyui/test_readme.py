"""What the README says about the code is what the code says."""

import update_readme


def test_the_table_of_families_is_up_to_date():
    text = update_readme.README.read_text(encoding="utf-8")
    assert update_readme.updated(text) == text, "run: .venv/bin/python tools/update_readme.py"
