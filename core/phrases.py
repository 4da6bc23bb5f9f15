"""Sentences that stay data: the English text, and beside it the template and the values that it was made of.

Logs, files and users of the API read the English text. The browser takes template and values, and says the same in the
language of the page: the template is the key of its translations, in ``locales/<language>/main.json``.
``tools/update_locales.py`` collects every template that stands as a literal in a call of :func:`phrase`,
:func:`translatable` or :func:`traced`.

A value of a phrase is translated if it is a phrase itself. A plain text stays what it is: a name, a file, what somebody
has typed, even where the same word is a key of the translations.

A placeholder is ``{name}``, or ``{name:.2f}`` with a format of Python's. ``{count|step|steps}`` stands for one of
several words: here the first for 1 and the last for all else, in the browser one for each plural of the language.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import zip_longest

PLACEHOLDER = re.compile(r"\{(\w+)(?::([^{}|]*))?(?:\|([^{}]*))?\}")
"""Name, format and words of a placeholder."""

_traced: dict[re.Pattern[str], str] = {}
"""Texts with values that code under torch.compile has filled in: how they are found, and their templates."""

Data = str | int | float | dict[str, "Data"] | bool
"""What the browser is sent: a number, a text that stays as it is, or a template with its values."""


class Phrase(str):
    """An English text that knows its template and values. Joined with other texts it is a plain text."""

    template: str
    values: Mapping[str, Data]
    starts: bool = False
    clause: bool = False


def phrase(template: str, **values: str | float) -> Phrase:
    """Return ``template`` with ``values``: numbers, texts, and other phrases."""

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


def translatable(text: str) -> Phrase:
    """Return ``text`` as a phrase; one that is a phrase already stays as it is, and a :func:`traced` one is read."""
    if isinstance(text, Phrase):
        return text
    made = Phrase(text)
    made.template, made.values = text, {}
    for pattern, template in _traced.items():
        if match := pattern.fullmatch(text):
            made.template, made.values = template, match.groupdict()
    return made


def traced(text: str) -> str:
    """Return ``text`` as it is: marks a constant for :func:`translatable`, which is called where the text is said.

    For texts that code under torch.compile handles, which has to be given plain ones. One that has placeholders, all
    of them ``{name}``, is filled with ``str.format``; :func:`translatable` finds the values again.
    """
    words = PLACEHOLDER.split(text)[:: PLACEHOLDER.groups + 1]
    if len(words) > 1:
        names = (f"(?P<{match[1]}>.+)" for match in PLACEHOLDER.finditer(text))
        pattern = "".join(part for pair in zip_longest(map(re.escape, words), names, fillvalue="") for part in pair)
        _traced[re.compile(pattern)] = text
    return text


def joined(separator: str, parts: Iterable[str]) -> Phrase:
    """Return texts with ``separator``, which has no words, between them."""
    named = {f"part{index}": part for index, part in enumerate(parts)}
    return phrase(separator.join(f"{{{name}}}" for name in named), **named)


def all_of(parts: Iterable[str]) -> str:
    """Return texts with ``and`` between them."""
    return reduce(lambda first, other: phrase("{first} and {other}", first=first, other=other), parts)


def any_of(parts: Iterable[str]) -> str:
    """Return texts with ``or`` between them."""
    return reduce(lambda first, other: phrase("{first} or {other}", first=first, other=other), parts)


def sentence(text: str) -> Phrase:
    """Return ``text`` with a capital letter at its start."""
    made = Phrase(text[:1].upper() + text[1:])
    made.template = text.template if isinstance(text, Phrase) else text
    made.values = text.values if isinstance(text, Phrase) else {}
    made.starts = True
    return made


def clause(text: str) -> Phrase:
    """Return ``text`` without the full stop at its end, and with commas in the place of semicolons."""
    made = Phrase(text.rstrip(".").replace(";", ","))
    made.template = text.template if isinstance(text, Phrase) else text
    made.values = text.values if isinstance(text, Phrase) else {}
    made.clause = True
    return made


def restored(text: str, kept: Data | None) -> str:
    """Return a text that was kept with its :func:`data` as the phrase that it was; None where nothing was kept.

    What was kept otherwise, in a database that others write to, leaves the plain text.
    """
    template, values = (kept.get("template"), kept.get("values")) if isinstance(kept, dict) else (None, None)
    if not isinstance(kept, dict) or not isinstance(template, str) or not isinstance(values, dict):
        return text
    made = Phrase(text)
    made.template, made.values = template, values
    made.starts, made.clause = kept.get("starts") is True, kept.get("clause") is True
    return made


def data(text: Data) -> Data:
    """Return what the browser is sent of a text or a number."""
    if isinstance(text, Phrase):
        values = {name: data(value) for name, value in text.values.items()}
        return {"template": text.template, "values": values, "starts": text.starts, "clause": text.clause}
    if isinstance(text, float) and not math.isfinite(text):
        return str(text)  # JSON has no such numbers
    return text
