"""Tell whether a statement has a shape that Citus sends to its node as it is, by the parse tree (docs/adr/0065).

An UPDATE copies. What it writes is computed before it, in a MATERIALIZED CTE behind the one that has locked the rows.
One part of a statement writes, and if it is an INSERT it is the statement itself.

A parse tree has no types. What may be IMMUTABLE or not, by the types of its operands, is refused, unless it is spelt
so that there is only one answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pglast import ast, parse_sql
from pglast.enums import A_Expr_Kind, LockWaitPolicy

WRITES = (ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)
CLOCKS = {"now", "statement_timestamp", "transaction_timestamp"}  # STABLE, and the same wherever they are evaluated

_COMPARISONS = {"=", "<>", "<", ">", "<=", ">="}
_CHOICES = {
    A_Expr_Kind.AEXPR_DISTINCT, A_Expr_Kind.AEXPR_NOT_DISTINCT, A_Expr_Kind.AEXPR_NULLIF, A_Expr_Kind.AEXPR_IN,
    A_Expr_Kind.AEXPR_OP_ANY, A_Expr_Kind.AEXPR_OP_ALL, A_Expr_Kind.AEXPR_BETWEEN, A_Expr_Kind.AEXPR_NOT_BETWEEN,
}  # fmt: skip
# They choose among values, and compute none.
_CHOOSES = (ast.CoalesceExpr, ast.MinMaxExpr, ast.CaseExpr, ast.CaseWhen, ast.BoolExpr, ast.NullTest, ast.BooleanTest)
_GIVEN = (ast.A_Const, ast.ParamRef, ast.SetToDefault, ast.A_ArrayExpr)


class Finding(NamedTuple):
    """What a statement does that Citus refuses, or does in several steps."""

    rule: str
    what: str

    def __str__(self) -> str:
        return SENTENCES[self.rule].format(what=self.what)


SENTENCES = {
    "set": "An UPDATE computes {what}. Compute it in a MATERIALIZED CTE that has locked the row, and copy it.",
    "on conflict": "ON CONFLICT DO UPDATE computes {what}. Compute it in what is inserted, and copy excluded's column.",
    "returning": "RETURNING computes {what}. Return columns, and compute it in the SELECT that reads them.",
    "where": "The WHERE of a write calls {what}. Compare with columns of a CTE that has called it.",
    "lock": "A SELECT that locks rows calls {what}. Call it in a CTE behind: PostgreSQL works it out before it waits.",
    "row": "A statement keeps whole rows of {what} in a column. Name the columns: a row has no type of its own.",
    "writes": "One statement writes {what} in a CTE. Citus cuts it into steps.",
    "top": "{what} has CTEs that are recursive or VOLATILE. Let it be a CTE as well, and select what it returns.",
    "no columns": "A SELECT has no columns ({what}). Select 1: Citus cannot name the columns of its result.",
    "catalogue": "A statement reads {what} beside our tables. Citus joins no catalogue with distributed tables.",
}


def findings(statement: str) -> list[Finding]:
    """Return what is wrong with the shape of a statement, or with that of each in a message."""
    return [found for raw in parse_sql(statement) for found in _of_statement(raw.stmt)]


def _of_statement(tree: Any) -> Iterator[Finding]:
    if not isinstance(tree, (ast.SelectStmt, *WRITES)):
        return
    nodes = list(walk(tree))
    writes = [node for node in nodes if isinstance(node, WRITES)]
    inserts = [write for write in writes if isinstance(write, ast.InsertStmt) and write is not tree]
    if len(writes) > 1 or inserts:
        yield Finding("writes", ", ".join(sorted(map(written_by, writes))))
    if isinstance(tree, (ast.UpdateStmt, ast.DeleteStmt)) and _is_kept_at_the_top(tree.withClause):
        yield Finding("top", written_by(tree))
    for write in writes:
        yield from _of_write(write)
    for node in nodes:
        if isinstance(node, ast.SelectStmt) and not (node.targetList or node.valuesLists or node.op):
            yield Finding("no columns", f"from {tables_of(node.fromClause)}")
        if isinstance(node, ast.SelectStmt) and _waits(node):
            for call in walk(node.targetList):
                if is_volatile(call):
                    yield Finding("lock", _named(call))
    names = {node.ctename for node in nodes if isinstance(node, ast.CommonTableExpr)}
    for node in nodes:
        if isinstance(node, ast.ResTarget) and _is_bare(node.val) and _column(node.val) in names:
            yield Finding("row", _column(node.val))
    read = {node.relname for node in nodes if isinstance(node, ast.RangeVar)} - names
    catalogue = {name for name in read if name.startswith("pg_")}
    if catalogue and any(name.startswith("pulse_django") for name in read):
        yield Finding("catalogue", ", ".join(sorted(catalogue)))


def _of_write(write: Any) -> Iterator[Finding]:
    if isinstance(write, ast.UpdateStmt):
        for target in write.targetList:
            for what in computed(target.val):
                yield Finding("set", f"{target.name} by {what}")
    if isinstance(write, ast.InsertStmt) and (conflict := write.onConflictClause):
        for target in conflict.targetList or ():
            for what in computed(target.val):
                yield Finding("on conflict", f"{target.name} by {what}")
        for what in mutable(conflict.whereClause, clocks=False):
            yield Finding("on conflict", f"its condition by {what}")
    if not isinstance(write, ast.InsertStmt):
        for what in mutable(write.whereClause):
            yield Finding("where", what)
    for target in getattr(write.returningClause, "exprs", None) or ():
        for what in computed(target.val):
            yield Finding("returning", what)


def _is_kept_at_the_top(ctes: Any) -> bool:
    return ctes is not None and (ctes.recursive or any(map(is_volatile, walk(ctes))))


def _is_bare(node: Any) -> bool:
    return isinstance(node, ast.ColumnRef) and len(node.fields) == 1


def _waits(select: Any) -> bool:
    return any(lock.waitPolicy == LockWaitPolicy.LockWaitBlock for lock in select.lockingClause or ())


def written_by(write: Any) -> str:
    return f"{type(write).__name__.removesuffix('Stmt').upper()} {write.relation.relname}"


def tables_of(clause: Any) -> str:
    return ", ".join(node.relname for node in walk(clause) if isinstance(node, ast.RangeVar)) or "nothing"


# ------------------------------------------------------------------------------------------------------- expressions


def computed(node: Any) -> Iterator[str]:
    """Yield what an expression does beyond copying and choosing columns and given values."""
    if isinstance(node, (ast.ColumnRef, *_GIVEN)) or _is_given(node) or _counts(node) or _is_short_text(node):
        return
    if _is_added_in_utc(node):
        yield from computed(node.args[1].lexpr.args[1])
        return
    if isinstance(node, _CHOOSES) or _chooses(node):
        for child in operands(node):
            yield from computed(child)
        return
    yield _named(node)


def _is_given(node: Any) -> bool:
    """A cast of a given value is done once, before the statement runs."""
    return isinstance(node, ast.TypeCast) and (isinstance(node.arg, _GIVEN) or _is_given(node.arg))


def _is_short_text(node: Any) -> bool:
    """A column of a short text, read as the type that has operators of its own (docs/adr/0039)."""
    return isinstance(node, ast.TypeCast) and isinstance(node.arg, ast.ColumnRef) and _column(node.arg) == "lane_key"


def _is_added_in_utc(node: Any) -> bool:
    """``(instant AT TIME ZONE 'UTC' + interval) AT TIME ZONE 'UTC'``: the session's time zone has no part in it."""
    if not _is_in_utc(node) or not isinstance(sum_ := node.args[1], ast.A_Expr) or _operator(sum_) != "+":
        return False
    return _is_in_utc(sum_.lexpr) and not any(isinstance(one, ast.ColumnRef) for one in walk(sum_.rexpr))


def _is_in_utc(node: Any) -> bool:
    return isinstance(node, ast.FuncCall) and _name(node) == "timezone" and node.args[0].val.sval == "UTC"


def _chooses(node: Any) -> bool:
    if not isinstance(node, ast.A_Expr):
        return False
    return node.kind in _CHOICES or (node.kind == A_Expr_Kind.AEXPR_OP and _operator(node) in _COMPARISONS)


def _counts(node: Any) -> bool:
    """``column + 1``, and documents: ``column || '{}'::jsonb``. No other types than these fit."""
    if not isinstance(node, ast.A_Expr) or not isinstance(node.lexpr, ast.ColumnRef):
        return False
    if _operator(node) in ("+", "-"):
        return isinstance(node.rexpr, ast.A_Const) and isinstance(node.rexpr.val, ast.Integer)
    return _operator(node) == "||" and _is_given(node.rexpr) and node.rexpr.typeName.names[-1].sval == "jsonb"


def mutable(node: Any, *, clocks: bool = True) -> Iterator[str]:
    """Yield what a condition calls. ``clocks``: some of them may be called, but in no choice.

    IMMUTABLE functions are refused as well. No write of ours needs one, so there is no list of them to keep.
    """
    if isinstance(node, ast.SubLink):
        yield from (_named(call) for call in walk(node) if is_volatile(call))
        yield from mutable(node.testexpr, clocks=clocks)
    elif isinstance(node, (ast.FuncCall, ast.SQLValueFunction)):
        if not (clocks and _name(node) in CLOCKS):
            yield _named(node)
        for argument in children(node):
            yield from mutable(argument, clocks=clocks)
    elif (isinstance(node, ast.A_Expr) and _depends_on_types(node)) or _casts_an_instant(node):
        yield _named(node)
    elif node is not None:
        inside = clocks and not isinstance(node, (ast.CoalesceExpr, ast.CaseExpr))
        for child in children(node):
            yield from mutable(child, clocks=inside)


VOLATILE = {"clock_timestamp", "nextval", "random", "gen_random_uuid", "set_config", "setval", "pg_notify"}


def is_volatile(call: Any) -> bool:
    if not isinstance(call, ast.FuncCall):
        return False
    return _name(call) in VOLATILE or _name(call).startswith(("pg_try_advisory", "pg_advisory"))


def _depends_on_types(node: Any) -> bool:
    """An instant and an interval are added by the session's time zone. The difference of two instants needs none."""
    if node.kind != A_Expr_Kind.AEXPR_OP or _operator(node) not in ("+", "-"):
        return False
    sides = node.lexpr, node.rexpr
    if any(isinstance(one, ast.A_Const) and isinstance(one.val, ast.Integer) for one in sides):
        return False
    if not any(isinstance(one, ast.ColumnRef) for side in sides for one in walk(side)):
        return False  # evaluated once, before the statement is sent
    return not (_operator(node) == "-" and all(map(_is_instant, sides)))


def _casts_an_instant(node: Any) -> bool:
    """The session's time zone says what its text or its day is."""
    return isinstance(node, ast.TypeCast) and not _is_given(node) and _is_instant(node.arg)


def _is_instant(node: Any) -> bool:
    """By their names."""
    if isinstance(node, ast.MinMaxExpr):
        return all(map(_is_instant, node.args))
    if isinstance(node, ast.FuncCall):
        return _name(node) in CLOCKS
    return isinstance(node, ast.ColumnRef) and re.fullmatch(r"(.+_)?(at|until)|deadline", _column(node)) is not None


# --------------------------------------------------------------------------------------------------------- the tree


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all below it."""
    if isinstance(node, tuple):
        for one in node:
            yield from walk(one)
    elif isinstance(node, ast.Node):
        yield node
        for child in children(node):
            yield from walk(child)


def children(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        yield from node
    elif isinstance(node, ast.Node):
        for name in node:
            value = getattr(node, name)
            if isinstance(value, tuple):
                yield from value
            elif isinstance(value, ast.Node):
                yield value


def operands(node: Any) -> Iterator[Any]:
    return (child for child in children(node) if not isinstance(child, ast.String))


def _operator(node: Any) -> str:
    return str(node.name[-1].sval)


def _name(node: Any) -> str:
    return node.funcname[-1].sval if isinstance(node, ast.FuncCall) else node.op.name


def _column(node: Any) -> str:
    last = node.fields[-1]
    return last.sval if isinstance(last, ast.String) else "*"


_NAMES: dict[type, Callable[[Any], str]] = {
    ast.FuncCall: lambda node: f"{_name(node)}()",
    ast.SQLValueFunction: lambda node: _name(node),
    ast.A_Expr: lambda node: f"an operator {_operator(node)}",
    ast.TypeCast: lambda node: f"a cast to {node.typeName.names[-1].sval}",
    ast.SubLink: lambda node: "a sub-select",
}


def _named(node: Any) -> str:
    name = _NAMES.get(type(node))
    return name(node) if name else type(node).__name__
