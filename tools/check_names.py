"""Check that no class, type and public function of the product has the same name as another one in a second file.

    python tools/check_names.py [FOLDER]

The hosts are apart: what two of them do for objects of their own may be called alike. ``main`` runs a command.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PRODUCT = ("optimizers", "measure", "service", "nodes", "scripts")
HOSTS = "in_"
"""How the folders of the hosts in ``optimizers`` begin."""


def defined(source: str) -> Iterator[str]:
    """Yield the names of the classes, types and public functions of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) or (
            isinstance(node, ast.FunctionDef) and not node.name.startswith(("_", "main"))
        ):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Subscript, ast.BinOp)):
            # A type is named as classes are: ``Weight = Callable[[], Tensor]``.
            yield from (one.id for one in node.targets if isinstance(one, ast.Name) and not one.id.isupper())


def named_twice(folder: Path) -> dict[str, list[Path]]:
    """Return the names that stand in two files or more of the product below ``folder``, with these files."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(file for part in PRODUCT for file in (folder / part).rglob("*.py")):
        for name in dict.fromkeys(defined(path.read_text(encoding="utf-8"))):
            places[name].append(path.relative_to(folder))
    return {name: files for name, files in places.items() if len(files) > 1 and not _of_different_hosts(files)}


def _of_different_hosts(files: list[Path]) -> bool:
    hosts = [file.parts[1] for file in files if file.parts[1].startswith(HOSTS)]
    return len(set(hosts)) == len(files)


if __name__ == "__main__":
    found = named_twice(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
    for name, files in found.items():
        print(f"{name} is defined in {' and in '.join(map(str, files))}: one of them needs another name.")
    sys.exit(bool(found))
