"""Changes by chance: each operator changes one expression or statement of a file's syntax tree."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], ast.cmpop]] = {
    ast.Lt: ast.GtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.LtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}

_ARITHMETIC: Final[dict[type[ast.operator], ast.operator]] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Add(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
    ast.BitOr: ast.BitAnd(),
    ast.BitAnd: ast.BitOr(),
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: of the file, from the root of the tree.
        line: the first line of the change.
        old: the text that goes.
        new: the text that comes.
        start: where the old text begins, in characters.
        tests: that can notice it; empty: those of its file.

    """

    path: str
    line: int
    old: str
    new: str
    start: int
    tests: tuple[str, ...] = ()

    def applied(self, source: str) -> str:
        """Give the file's text with the change."""
        assert source.startswith(self.old, self.start)
        return source[: self.start] + self.new + source[self.start + len(self.old) :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {_short(self.old)} -> {_short(self.new)}"


def _short(text: str) -> str:
    return " ".join(text.split())[:90]


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Give all changes of a file, in their order."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def position(line: int, column: int) -> int:
        # Columns of the syntax tree are bytes of UTF-8.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node, new in _changes(ast.parse(source)):
        start = position(node.lineno, node.col_offset)
        old = source[start : position(node.end_lineno or node.lineno, node.end_col_offset or 0)]
        found.append(Mutant(path, node.lineno, old, new, start))
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in node.body:
                yield from _statements(part)
    # Values of a module, such as limits.
    for part in tree.body:
        if isinstance(part, ast.Assign | ast.AnnAssign) and isinstance(part.value, ast.Constant):
            yield from _constant(part.value)


def _statements(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return  # visited by itself
    if _droppable(node):
        yield node, "pass"
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant):
        yield node.test, f"not ({ast.unparse(node.test)})"
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _statements(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for each in child.body:
                yield from _statements(each)
        elif isinstance(child, ast.expr) and not (isinstance(node, ast.AnnAssign) and child is node.annotation):
            yield from _expressions(child)


def _droppable(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await) and not _logs(node.value)
    return isinstance(node, ast.AugAssign | ast.Break | ast.Continue) or (
        isinstance(node, ast.Raise) and node.exc is not None
    )


def _expressions(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.JoinedStr) or _logs(node):
        return
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _COMPARISONS[type(node.ops[0])]
        yield node, ast.unparse(ast.Compare(node.left, [other], node.comparators))
    elif isinstance(node, ast.BoolOp):
        operator = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, f"({ast.unparse(ast.BoolOp(operator, node.values))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield node, f"({ast.unparse(ast.BinOp(node.left, _ARITHMETIC[type(node.op)], node.right))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"bool({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant):
        yield from _constant(node)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _expressions(child)
        elif isinstance(child, ast.keyword):
            yield from _expressions(child.value)


def _constant(node: ast.Constant) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int):
        yield node, str(node.value + 1)


def _logs(node: ast.AST) -> bool:
    """Whether it writes to the log: its words are for people."""
    call = node.value if isinstance(node, ast.Await) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith("_LOG.")
