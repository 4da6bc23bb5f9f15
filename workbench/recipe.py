"""A recipe: the steps that were chosen for a kind of model on a kind of machine, and where they come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..core.errors import InvalidSetting
from ..core.files import read_json, write_atomically

PREFIX = "Paceline"
"""Every node's id begins with it; a person may leave it out."""

FORMAT = 1
"""Version of the file format; a file of a later version is refused, never half understood."""

Value = str | int | float | bool
"""What a widget of a node can be set to."""

PRESET_NAME = re.compile(r"[\w][\w .()+-]{0,79}")
"""Names that a preset can have: they are names of files too."""

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class Step:
    """One node of a recipe: its id, and the widget values that differ from its defaults."""

    node: str
    inputs: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Steps in the order in which they are applied, which changes how the graph reads, but not the picture.

    ``made_on`` says for people where the settings were found (device, model, versions); nothing checks it.
    """

    name: str
    steps: tuple[Step, ...]
    description: str = ""
    made_on: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the text of a file, always the same for the same recipe."""
        return json.dumps({"paceline_recipe": FORMAT, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def of(cls, document: Any, source: str) -> Recipe:
        """Return the recipe in a file's content, which errors call ``source``; `InvalidSetting` if it has none."""
        remedy = "Save it again with Benchmark Sweep, or choose another preset."
        version = document.get("paceline_recipe") if isinstance(document, dict) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidSetting(f"{source} is not a Paceline recipe: it has no number paceline_recipe.", remedy)
        if version > FORMAT:
            problem = f"{source} has format {version}, and this version of Paceline reads up to {FORMAT}."
            raise InvalidSetting(problem, "Update Paceline.")
        try:
            return TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, wrong["loc"]))
            raise InvalidSetting(f"{source} cannot be read: {where}: {wrong['msg']}.", remedy) from None


def load_recipe(path: Path) -> Recipe:
    """Read a recipe; `InvalidSetting` if the file is missing, far too large, or not a recipe."""
    try:
        document = read_json(path, _LARGEST_FILE)
    except ValueError as error:
        raise InvalidSetting(f"The preset {path.name} cannot be read ({error}).", "Choose another preset.") from None
    return Recipe.of(document, path.name)


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe; the file appears whole or not at all. `InvalidSetting` for one that could not be read again."""
    content = recipe.to_json().encode()
    if len(content) > _LARGEST_FILE:
        raise InvalidSetting(f"{path.name} would be larger than a recipe can be.", "Leave out some of its steps.")
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def require_preset_name(what: str, name: str, taken: tuple[str, ...]) -> str:
    """Return ``name`` if a preset can have it; `InvalidSetting` names bad characters, or the names that are taken."""
    if not PRESET_NAME.fullmatch(name) or name.strip() != name or name in taken:
        raise InvalidSetting(
            f"{what} is {name!r}, which cannot be the name of a preset.",
            f"Use letters, digits, spaces and . _ - + ( ), not starting with a dot, and not {', '.join(taken)}.",
        )
    return name
