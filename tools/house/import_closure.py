"""How much a reader must open to understand one technique, before and after a change.

    python tools/house/import_closure.py BEFORE AFTER [--list NODE]

BEFORE and AFTER are commits or folders with the pack. For each node, the files that a reader opens are counted, and
their lines:

- The node's file is opened. Of a file that is opened, every import is followed, those inside of functions too; not
  those below ``if TYPE_CHECKING``, and none that leaves the pack.
- An import leads to the file that defines the name. A file that only hands the name on, as an ``__init__`` does, is not
  opened.
- ``import_module`` with a literal name counts as an import of that module.
- Lines are all lines: code, comments, docstrings and empty ones.
- A table that a package fills in its ``__init__`` (families, methods of token reduction) does not lead to its entries.

What all of the nodes open, which is read once, has a row of its own too. The exit status is 1 if a technique needs more
than the wanted share (``--at-most``, 0.6) of files or lines.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from house.same_images import checked_out  # noqa: E402

NODES = ("fuse_qkv", "apply_tome", "compile_unet", "quantize_int8")
COMMON = "all of these"
WANTED = 0.6


@dataclass(frozen=True)
class Import:
    """A name that a file takes from a module of the pack; ``name`` is None for the module as a whole."""

    module: tuple[str, ...]
    name: str | None
    alias: str


@dataclass
class File:
    """A file of the pack: what it imports and what it defines.

    Attributes:
        module: its parts from the pack's root, without ``__init__``.
        path: where it is.
    """

    module: tuple[str, ...]
    path: Path
    imports: list[Import] = field(default_factory=list)
    defines: set[str] = field(default_factory=set)

    @cached_property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.path.read_text(encoding="utf-8").splitlines())


class _Reader(ast.NodeVisitor):
    """Collects the imports of a whole file, and the names that its top level defines."""

    def __init__(self, file: File) -> None:
        self.file = file
        is_package = file.path.name == "__init__.py"
        self.package = file.module if is_package else file.module[:-1]

    def visit_If(self, node: ast.If) -> None:  # noqa: N802 (the name that ast asks for)
        """Leave out what is there for type checkers only."""
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        for part in node.orelse if name == "TYPE_CHECKING" else [*node.body, *node.orelse]:
            self.visit(part)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        """Note each name of a relative import."""
        if not node.level:
            return
        module = self._relative(node.level, (node.module or "").split(".") if node.module else [])
        for name in node.names:
            self.file.imports.append(Import(module, name.name, name.asname or name.name))

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        """Note ``import_module("..module", __package__)``."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0] if node.args else None
        if called == "import_module" and isinstance(first, ast.Constant) and str(first.value).startswith("."):
            name = str(first.value)
            level = len(name) - len(name.lstrip("."))
            self.file.imports.append(Import(self._relative(level, name[level:].split(".")), None, ""))
        self.generic_visit(node)

    def _relative(self, level: int, parts: list[str]) -> tuple[str, ...]:
        base = self.package[: len(self.package) - (level - 1)]
        return (*base, *parts)


def _defined(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements define, without what is inside of functions and classes."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            names |= _defined(ast.iter_child_nodes(node))
    return names


class Pack:
    """The files of a pack, read when they are asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[tuple[str, ...], File | None] = {}

    def file(self, module: tuple[str, ...]) -> File | None:
        """Return a module's file, or None if there is no such module in the pack."""
        if module not in self._files:
            place = self.root.joinpath(*module)
            found = [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]
            self._files[module] = self._read(module, found[0]) if found and module else None
        return self._files[module]

    @staticmethod
    def _read(module: tuple[str, ...], path: Path) -> File:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        file = File(module, path, defines=_defined(tree.body))
        _Reader(file).visit(tree)
        return file

    def defining(self, wanted: Import, passed: tuple[Import, ...] = ()) -> File | None:
        """Return the file that defines what an import names, followed through files that hand it on."""
        if wanted in passed:
            return None
        file = self.file(wanted.module)
        if wanted.name is None:
            return file
        inner = self.file((*wanted.module, wanted.name))
        if file is None:
            return inner
        if wanted.name in file.defines:
            return file
        for handed_on in file.imports:
            if handed_on.alias == wanted.name:
                return self.defining(handed_on, (*passed, wanted)) or file
        return inner or file

    def closure(self, module: tuple[str, ...]) -> list[File]:
        """Return the files to open for a module, itself first."""
        first = self.file(module)
        if first is None:
            return []
        opened, found = [first], {first.path}
        for file in opened:
            for wanted in file.imports:
                target = self.defining(wanted)
                if target is not None and target.path not in found:
                    found.add(target.path)
                    opened.append(target)
        return opened


def main() -> int:
    """Print the table, or one node's files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="commit, or folder with the pack")
    parser.add_argument("after", help="the same")
    parser.add_argument("--list", metavar="NODE", help=f"list the files of a node: {', '.join(NODES)}, or another one")
    parser.add_argument("--at-most", type=float, default=WANTED, metavar="SHARE", help="wanted share of BEFORE")
    given = parser.parse_args()
    counts: list[dict[str, tuple[int, int]]] = []
    nodes = (given.list,) if given.list else NODES
    for name in (given.before, given.after):
        with checked_out(name) as folder:
            pack = Pack(folder)
            files = {node: pack.closure(("nodes", node)) for node in nodes}
            counts.append({node: _size(found) for node, found in files.items()})
            common = set.intersection(*({file.path for file in found} for found in files.values()))
            counts[-1][COMMON] = _size([file for file in files[nodes[0]] if file.path in common])
            if given.list:
                print(
                    f"{name}:", *(f"{f.lines:5}  {f.path.relative_to(folder)}" for f in files[given.list]), sep="\n  "
                )
    return _print_table(nodes, *counts, wanted=given.at_most)


def _size(files: list[File]) -> tuple[int, int]:
    return len(files), sum(file.lines for file in files)


def _print_table(
    nodes: tuple[str, ...], before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], wanted: float
) -> int:
    print(f"{'node':16}{'files':>16}{'share':>8}{'lines':>18}{'share':>8}")
    too_much = 0
    for node in (*nodes, COMMON) if len(nodes) > 1 else nodes:
        cells = ""
        for index, width in ((0, 16), (1, 18)):
            old, new = before[node][index], after[node][index]
            share = new / old if old else float("inf")
            too_much += node != COMMON and (share > wanted or not new)
            cells += f"{f'{old} -> {new}':>{width}}{share:>8.0%}"
        print(f"{node:16}{cells}")
    print(f"{too_much} of {2 * len(nodes)} above {wanted:.0%}" if too_much else f"all at most {wanted:.0%}")
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
