"""Headlines in the language of the page: the English text, and beside it the template and values that it was made of.

Logs, files and users of the API read the English text. The browser takes template and values, and says the same in the
language of the page: the template is the key of its translations, in ``locales/<language>/main.json``.

A headline is a phrase: of a :class:`~.activity.Summary`, the first of a policy's ``clauses()``, ``brief`` and
``outcome`` of :class:`~.errors.CannotHelp`, a verdict. Everything else is plain English: details, notes, errors,
reports, and reasons, also where a headline quotes one.

A placeholder is ``{name}``, or ``{name:.2f}`` with a format of Python's. ``{count|step|steps}`` stands for one of
several words: here the first for 1 and the last for all else, in the browser one for each plural of the language. A
value is translated if it is a phrase itself; a plain text stays what it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

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
        return format(value, form or "")

    made = Phrase(PLACEHOLDER.sub(fill, template))
    made.template, made.values = template, values
    return made


def translatable(template: str) -> str:
    """Return ``template``, which a :func:`phrase` elsewhere fills: marks it for ``tools/update_locales.py``."""
    return template


def data(text: Data) -> Data:
    """Return what the browser is sent of a text or a number."""
    if isinstance(text, Phrase):
        return {"template": text.template, "values": {name: data(value) for name, value in text.values.items()}}
    if isinstance(text, float) and not math.isfinite(text):
        return str(text)  # JSON has no such numbers
    return text
