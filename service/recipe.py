"""A recipe: the steps that were chosen for a kind of model on a kind of machine, and where they come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ..optimizers.core.errors import InvalidSetting
from ..optimizers.core.files import read_json, write_atomically

PREFIX = "Paceline"
"""Every node's id begins with it; a person may leave it out."""

FORMAT = 1
"""Version of the file format; a file of a later version is refused, never half understood."""

Value = str | int | float | bool
"""What a widget of a node can be set to."""

_PRESET_NAME = re.compile(r"[\w][\w .()+-]{0,79}")
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


def load_recipe(path: Path) -> Recipe:
    """Read a recipe; `InvalidSetting` if the file is missing, far too large, or not a recipe."""
    remedy = "Save it again with Benchmark Sweep, or choose another preset."
    try:
        document = read_json(path, _LARGEST_FILE)
    except ValueError as error:
        raise InvalidSetting(f"The preset {path.name} cannot be read ({error}).", "Choose another preset.") from None
    version = document.get("paceline_recipe") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidSetting(f"{path.name} is not a Paceline recipe: it has no number paceline_recipe.", remedy)
    if version > FORMAT:
        problem = f"{path.name} has format {version}, and this version of Paceline reads up to {FORMAT}."
        raise InvalidSetting(problem, "Update Paceline.")
    try:
        return TypeAdapter(Recipe).validate_python(document)
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, wrong["loc"]))
        raise InvalidSetting(f"{path.name} cannot be read: {where}: {wrong['msg']}.", remedy) from None


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe, always the same text for the same one; the file appears whole or not at all."""
    text = json.dumps({"paceline_recipe": FORMAT, **asdict(recipe)}, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()))


def require_preset_name(what: str, name: str, taken: tuple[str, ...]) -> str:
    """Return ``name`` if a preset can have it; `InvalidSetting` names bad characters, or the names that are taken."""
    if not _PRESET_NAME.fullmatch(name) or name.strip() != name or name in taken:
        raise InvalidSetting(
            f"{what} is {name!r}, which cannot be the name of a preset.",
            f"Use letters, digits, spaces and . _ - + ( ), not starting with a dot, and not {', '.join(taken)}.",
        )
    return name
