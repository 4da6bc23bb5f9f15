"""The faults that can be put into a Python file: what `mutmut` and `cosmic-ray` change too, on the syntax tree.

Docstrings, annotations and the words of messages stay as they are: no program depends on them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.MatMult: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
NAMES = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "any": "all", "all": "any", "ones": "zeros"}


@dataclass(frozen=True)
class Fault:
    """One change of a file.

    Attributes:
        line: where, counted from 1.
        text: what is changed, for the report.
        source: the whole file with it.
    """

    line: int
    text: str
    source: str


def faults(source: str) -> list[Fault]:
    """Return every fault that can be put into ``source``, in the order of lines."""
    tree = ast.parse(source)
    skipped = {id(node) for part in _not_code(tree) for node in ast.walk(part)}
    found = []
    for position, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for number, (line, text, _) in enumerate(_changes(node)):
            changed = copy.deepcopy(tree)
            target = next(other for index, other in enumerate(ast.walk(changed)) if index == position)
            _put_in_place(target, list(_changes(target))[number][2])
            found.append(Fault(line, text, ast.unparse(ast.fix_missing_locations(changed))))
    return sorted(found, key=lambda fault: fault.line)


def _put_in_place(target: ast.AST, replacement: ast.AST) -> None:
    """Turn ``target`` into ``replacement`` where it stands."""
    target.__class__ = replacement.__class__
    target.__dict__.clear()
    target.__dict__.update(replacement.__dict__)


def _not_code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts that are only read by people and type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a text below a constant
            yield node
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                yield part
        if isinstance(node, (ast.JoinedStr, ast.ImportFrom, ast.Import)):
            yield node
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):  # that it is raised is tested, not its words
            yield node.exc
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            yield node  # a name for a type: `Mode = Literal["mean", "sum"]`


def _changes(node: ast.AST) -> Iterator[tuple[int, str, ast.AST]]:
    """Yield line, description and replacement for each change of one node."""
    line = getattr(node, "lineno", 0)
    code = _first_line(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in OPERATORS.get(type(node.ops[0]), ()):
            yield line, f"{code}  ->  {other.__name__}", _with(node, ops=[other()])
    elif isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in OPERATORS.get(type(operator), ()):
                ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                yield line, f"{code}  ->  {other.__name__} at {index}", _with(node, ops=ops)
    elif isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
        for other in OPERATORS.get(type(node.op), ()):
            yield line, f"{code}  ->  {other.__name__}", _with(node, op=other())
    elif isinstance(node, ast.UnaryOp):
        yield line, f"{code}  ->  without {type(node.op).__name__}", node.operand
    elif isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            yield line, f"{code}  ->  {value!r}", ast.Constant(value)
    elif isinstance(node, ast.IfExp):
        yield line, f"{code}  ->  swapped", _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, (ast.If, ast.While)):
        test = ast.UnaryOp(ast.Not(), node.test)
        yield line, f"{code}  ->  not", _with(node, test=test)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield line, f"{code}  ->  return None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break):
        yield line, "break  ->  continue", ast.Continue()
    elif isinstance(node, ast.Continue):
        yield line, "continue  ->  break", ast.Break()
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None:
                kept = [other for other in node.keywords if other is not keyword]
                yield line, f"{code}  ->  without {keyword.arg}", _with(node, keywords=kept)
    elif isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
        yield line, f"{node.id}  ->  {NAMES[node.id]}", _with(node, id=NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in NAMES and isinstance(node.ctx, ast.Load):
        yield line, f"{code}  ->  {NAMES[node.attr]}", _with(node, attr=NAMES[node.attr])
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        for decorator in node.decorator_list:
            if _name_of(decorator) not in ("property", "staticmethod", "classmethod", "dataclass"):
                kept = [other for other in node.decorator_list if other is not decorator]
                yield decorator.lineno, f"{ast.unparse(decorator)}  ->  removed", _with(node, decorator_list=kept)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) or isinstance(node, (ast.AugAssign, ast.Raise)):
        yield line, f"{code}  ->  removed", ast.Pass()
    if isinstance(node, ast.Assign) and all(isinstance(target, ast.Attribute) for target in node.targets):
        yield line, f"{code}  ->  removed", ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _other_values(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value * 2 + 1]
    if isinstance(value, str) and value:
        return [f"{value}x"]
    return []


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _name_of(decorator: ast.AST) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rsplit(".", 1)[-1]


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:100] if hasattr(node, "lineno") else ""
