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
from collections.abc import Iterable, Mapping

PLACEHOLDER = re.compile(r"\{(\w+)(?::([^{}|]*))?(?:\|([^{}]*))?\}")
"""Name, format and words of a placeholder."""

Data = str | int | float | dict[str, "Data"] | bool
"""What the browser is sent: a number, a text that stays as it is, or a template with its values."""


class Phrase(str):
    """An English text that knows its template and values. Joined with other texts it is a plain text."""

    template: str
    values: Mapping[str, Data]


def phrase(template: str, **values: str | float) -> Phrase:
    """Return ``template``, a literal that ``tools/update_locales.py`` finds, with ``values``."""

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


def data(text: Data) -> Data:
    """Return what the browser is sent of a text or a number."""
    if isinstance(text, Phrase):
        return {"template": text.template, "values": {name: data(value) for name, value in text.values.items()}}
    if isinstance(text, float) and not math.isfinite(text):
        return str(text)  # JSON has no such numbers
    return text


# In the place of what was translated before, until no file asks for it any more.


def translatable(text: str) -> Phrase:
    """Return a text without placeholders as a phrase."""
    if isinstance(text, Phrase):
        return text
    made = Phrase(text)
    made.template, made.values = text, {}
    return made


def traced(text: str) -> str:
    """Return ``text``."""
    return text


def joined(separator: str, parts: Iterable[str]) -> Phrase:
    """Return a phrase of texts with ``separator`` between them."""
    named = {f"part{index}": part for index, part in enumerate(parts)}
    return phrase(separator.join(f"{{{name}}}" for name in named), **named)


def all_of(parts: Iterable[str]) -> str:
    """Return texts with ``and`` between them."""
    return " and ".join(parts)


def any_of(parts: Iterable[str]) -> str:
    """Return texts with ``or`` between them."""
    return " or ".join(parts)


def sentence(text: str) -> str:
    """Return ``text`` with a capital letter at its start."""
    return text[:1].upper() + text[1:]


def clause(text: str) -> str:
    """Return ``text`` without the full stop at its end, and with commas in the place of semicolons."""
    return text.rstrip(".").replace(";", ",")


def restored(text: str, kept: object) -> str:
    """Return ``text``."""
    return text
