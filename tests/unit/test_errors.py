"""Sentences of errors have room in a dialog, whatever was typed."""

from paceline.core.errors import InvalidSetting, require_choice


def test_a_long_value_is_quoted_in_part_and_the_remedy_stays():
    import pytest

    with pytest.raises(InvalidSetting) as found:
        require_choice("method", "x" * 100_000, ("merge", "auto"))
    message = str(found.value)
    assert len(message) < 1500
    assert message.startswith("method is 'xxx")
    assert message.endswith("It must be one of: merge, auto.")
