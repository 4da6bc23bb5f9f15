"""Why torch compiled a function again, in words: what changed, where, and who has put it there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Owner = Callable[[object], str]
"""Returns whose a function or object is, e.g. ``ComfyUI-KJNodes``; "" where nobody else has made it."""

_LONGEST = 200
"""Characters of torch's own line that are shown."""

_MOST = 200
"""Objects of an argument that are looked through for the nodes that have put them there."""

_PATCHES = (
    r"patches|wrappers|attention_override|block_modifiers|callbacks|___check_obj_id|___check_function|___check_type_id"
)

_CHANGES = (
    (r"size mismatch at index 0\b|\.size\(\)\[0\]", "another batch size"),
    (r"size mismatch|\.size\(\)\[", "another size"),
    (r"dtype mismatch", "another dtype"),
    (r"^weights ==", "weights of another dtype, size or device (a LoRA, a precision)"),
    (r"stride mismatch|rank mismatch", "another layout of a tensor"),
    (r"cond_or_uncond", "other passes at once (the positive prompt, the negative one, or both together)"),
    (r"weight_function|bias_function|_parameters\['\w+'\]\.patches", "a LoRA that is applied while the layer computes"),
    (r"device", "another device"),
    (r"residual\.full", "attention computed both ways, or not any more (Apply ToMe)"),
    (r"__closure__|cell_contents|__defaults__|__code__", "another function, or other values that it holds,"),
    (_PATCHES, "other patches or options"),
    (r"transformer_options|args\[\d+\]\['", "other patches or options"),
    (r"_modules\[|_buffers\[|_parameters\[", "a layer that is another one, or runs other code,"),
    (r"grad_mode|inference_mode|autocast|torch_function|deterministic", "another mode of torch"),
)
"""What the guards of compiled code that did not hold say, and what has changed then; most specific first."""

_PLACE = re.compile(
    r"\b(?:L\['(args|kwargs|function)'\]|(args|kwargs|function))((?:\.\w+|\[(?:'[^']*'|\"[^\"]*\"|-?\d+)\])*)"
)
_STEP = re.compile(r"\.(\w+)|\[(?:'([^']*)'|\"([^\"]*)\"|(-?\d+))\]")
_LAYER = re.compile(r"_modules\['([^']*)'\]")
_OPTION = re.compile(r"(?:args\[\d+\]|kwargs\['transformer_options'\])\['([^']*)'\]")


def explain_recompile(reason: str, given: Mapping[str, Any] | None = None, owner: Owner = lambda thing: "") -> str:
    """Return what has changed in words, with torch's own line behind.

    ``reason`` is e.g. ``0/0: tensor 'args[0]' size mismatch at index 2. expected 8, actual 16``. ``given``: ``args``,
    ``kwargs`` and ``function`` of the call that was compiled, in which ``owner`` is asked whose what changed is.
    """
    line = re.sub(r"^\d+/\d+: |\s+# .*", "", reason.partition("\n")[0])
    words = next((words for pattern, words in _CHANGES if re.search(pattern, line)), "")
    words = words or "a value in the call or the network that is another one"
    if layers := _LAYER.findall(line):
        words = f"{words.rstrip(',')} in the layer {'.'.join(layers)}"
    elif (option := _OPTION.search(line)) is not None and "patches or options" in words:
        words = f"{words} ({option[1]})"
    if whose := _owners(line, given or {}, owner):
        words = f"{words.rstrip(',')} of {' and '.join(whose)}"
    return f"{words.rstrip(',')} (torch: {line[:_LONGEST]})"


def _owners(line: str, given: Mapping[str, Any], owner: Owner) -> list[str]:
    """Return whose the objects are that torch's line names: those at its place, else those on the way there."""
    for found in _PLACE.finditer(line):
        way = list(_walk(given.get(found[1] or found[2]), found[3]))
        for thing in reversed(way):
            if names := dict.fromkeys(filter(None, map(owner, _inside(thing)))):
                return list(names)
    return []


def _walk(thing: Any, path: str) -> Iterator[object]:
    """Yield the objects on the way along ``path``, as far as it goes; attributes and items are only read."""
    for step in _STEP.finditer(path):
        attribute, *keys = step.groups()
        try:
            if attribute is not None:
                thing = getattr(thing, attribute)
            else:
                thing = (
                    thing[int(keys[2])] if keys[2] is not None else thing[keys[0] if keys[0] is not None else keys[1]]
                )
        except Exception:  # what was there before is not there any more
            return
        yield thing


def _inside(thing: object) -> Iterator[object]:
    """Yield an object, or what dictionaries and lists hold."""
    waiting, seen = [thing], 0
    while waiting and seen < _MOST:
        one, seen = waiting.pop(), seen + 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
        else:
            yield one
