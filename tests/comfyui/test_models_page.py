"""What docs/models.md says about the code is what the code says."""

import update_models


def test_the_tables_of_models_are_up_to_date():
    text = update_models.PAGE.read_text(encoding="utf-8")
    assert update_models.updated(text) == text, "run: .venv/bin/python tools/update_models.py"
