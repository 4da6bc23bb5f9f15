"""Headlines in the language of the page: English text, with the template and values that it was made of.

Logs, files and users of the API read the text; the browser looks the template up in ``locales/<language>/main.json``.
Headlines are those of :class:`~.activity.Summary`, the first of a policy's ``clauses()``, ``brief`` and ``outcome`` of
:class:`~.errors.CannotHelp`, and verdicts. Everything else is plain English, also reasons that a headline quotes.

A placeholder is ``{name}``, ``{name:.2f}``, or ``{count|step|steps}`` for words by number: here the first for 1 and the
last for all else, in the browser one for each plural of the language. Values that are phrases are translated too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

PLACEHOLDER = re.compile(r"\{(\w+)(?::([^{}|]*))?(?:\|([^{}]*))?\}")
"""Name, format and words of a placeholder."""

Data = str | int | float | dict[str, "Data"] | bool
"""What the browser is sent: a number, a text that stays as it is, or a template with its values."""


class Phrase(str):
    """An English text that knows its template and values. Joined with other texts it is a plain text."""

    template: str
    values: Mapping[str, Data]


def phrase(template: str, **values: str | float) -> Phrase:
    """Return ``template`` with ``values``. It is a literal, which ``tools/update_locales.py`` finds."""

    def fill(match: re.Match[str]) -> str:
        name, form, words = match.groups()
        value = values[name]
        if words is not None:
            choices = words.split("|")
            return choices[0] if value == 1 else choices[-1]
        text = format(value, form or "")
        if not (form or "").endswith("g") or isinstance(value, str):
            return text
        # As people read it: 17 and 123, where Python writes ``17.`` and ``1.2e+02``.
        return f"{float(text):.0f}" if "e+" in text else text.rstrip(".")

    made = Phrase(PLACEHOLDER.sub(fill, template))
    made.template, made.values = template, values
    return made


def translatable(template: str) -> str:
    """Return ``template``, which a :func:`phrase` elsewhere fills: marks it for ``tools/update_locales.py``."""
    return template


def data(text: Data) -> Data:
    """Return the JSON value that is sent to the browser for a text or a number."""
    if isinstance(text, Phrase):
        return {"template": text.template, "values": {name: data(value) for name, value in text.values.items()}}
    if isinstance(text, float) and not math.isfinite(text):
        return str(text)  # JSON has no such numbers
    return text


def phrase_of(kept: Any) -> Any:
    """Return the text or number that :func:`data` was made of."""
    if not isinstance(kept, dict):
        return kept
    return phrase(kept["template"], **{name: phrase_of(value) for name, value in kept["values"].items()})
