"""Remove modules from a copy of the project, and everything that uses them.

Imports from a removed module are removed, and so is the smallest part that uses them: an item of a list, an argument
with a keyword, a base class, one side of ``or``, or else the statement. A condition that uses one is false. A function
is removed if it has lost its return value or its last statement, and its users are changed in the same way. A function
of the tests is removed as a whole. The columns of jobs stay, because the statements of the kernel name them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

_TESTS = ("tests", "chaos", "benchmarks")
_TOPS = ("pulse_django", "testproject", *_TESTS)
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


class Project:
    """The parsed files of a copy, and what is gone."""

    def __init__(self, folder: Path, rooms: set[str], own: set[str]) -> None:
        files = [file for top in _TOPS for file in (folder / top).rglob("*.py") if file.name != "0001_initial.py"]
        self.files = {_module_of(file, folder): file for file in files}
        self.trees = {module: ast.parse(file.read_text()) for module, file in self.files.items()}
        self.modules = {module for module in self.files if f"{module}..".split(".")[1] in rooms}
        self.modules |= {_module_of(folder / file, folder) for file in own}
        self.names: set[tuple[str, str]] = set()  # a module, and one of its names
        self.tables: set[str] = set()
        self.methods: dict[str, set[str]] = {}  # by class
        for module in sorted(self.modules):
            for one in [one for one in self.trees[module].body if isinstance(one, ast.ClassDef)]:
                self.methods.setdefault(one.name, set()).update(_methods_of(one))
                if module.endswith(".models") and ast.unparse(one.bases[0]) == "models.Model":
                    self.names.add((module, one.name))
                    table = re.search(r"db_table = '(\w+)'", ast.unparse(one))
                    self.tables.add(table[1] if table else f"pulse_django_{one.name.lower()}")
                    self.trees[module].body.remove(one)
            if module.endswith(".models") and "JobRow" in ast.unparse(self.trees[module]):
                self.modules.remove(module)
            else:
                self.files.pop(module).unlink()
        self.words = {module: {*re.findall(r"\w+", file.read_text())} for module, file in self.files.items()}
        self.named = {*rooms, *self.tables, *(Path(file).stem for file in own)}

    def is_gone(self, module: str, name: str) -> bool:
        return (module, name) in self.names or module in self.modules or f"{module}.{name}" in self.modules

    def cut(self) -> None:
        """Write the files anew, without what is gone."""
        count, seen = -1, set()
        while count != len(self.names):
            count = len(self.names)
            named = self.named | {name for _module, name in self.names}
            for module in [one for one, words in self.words.items() if named & words]:
                _File(self, module).cut()
                seen.add(module)
        for of_module in [one for one in ast.walk(self.trees["pulse_django"]) if isinstance(one, ast.Dict)]:
            for listed in [one for one in of_module.values if isinstance(one, ast.Constant)]:  # names in one text
                names = str(listed.value).split()
                listed.value = " ".join(one for one in names if ("pulse_django", one) not in self.names)
        for module in seen:
            text = ast.unparse(ast.fix_missing_locations(self.trees[module]))
            if text != ast.unparse(ast.parse(self.files[module].read_text())):
                self.files[module].write_text(f"{text}\n")


class _File:
    def __init__(self, project: Project, module: str) -> None:
        self.project, self.module, self.tree = project, module, project.trees[module]
        self.is_test = module.split(".")[0] in _TESTS and module != "tests.factories"
        self.gone = {name for of, name in project.names if of == module}
        self.modules: dict[str, str] = {}  # the modules that are imported under a name
        self.of_self: set[str] = set()  # methods that the class has lost

    def cut(self) -> None:
        count = -1
        while count != len(self.gone):
            count = len(self.gone)
            self.tree.body = self.body(self.tree.body)
        self.project.names |= {(self.module, name) for name in self.gone}

    def body(self, statements: list[Any]) -> list[Any]:
        return [kept for one in statements for kept in self.statement(one)]

    def statement(self, one: Any) -> list[Any]:
        """Return what is left of a statement: nothing, itself, or other statements."""
        has_lost = isinstance(one, ast.ClassDef) and any(self.lost_with(base) for base in one.bases)
        if not has_lost and not any(
            self.is_gone(inner) or isinstance(inner, ast.ImportFrom) for inner in ast.walk(one)
        ):
            return [one]
        match one:
            case ast.ImportFrom():
                return self.import_(one)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self.function(one)
            case ast.ClassDef():
                return self.class_(one)
            case ast.If() | ast.While() | ast.For() | ast.With() | ast.Try():
                return self.compound(one)
            case ast.Assign(targets=[ast.Tuple() as names], value=ast.Tuple() as values):
                pairs = zip(names.elts, values.elts, strict=True)
                return self.body([ast.Assign([name], value, lineno=one.lineno) for name, value in pairs])
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self.assignment(one)
            case ast.Return(value=ast.expr()) | ast.Expr():
                one.value = self.part(one.value, is_row=True)
                return [one] if one.value else []
        return [] if self.uses(one) else [one]

    def import_(self, one: ast.ImportFrom) -> list[Any]:
        parts = self.module.split(".")
        parts = parts[: len(parts) - one.level + (self.project.files[self.module].name == "__init__.py")]
        base = ".".join([*(parts if one.level else []), *([one.module] if one.module else [])])
        gone = [alias for alias in one.names if self.project.is_gone(base, alias.name)]
        self.gone |= {alias.asname or alias.name for alias in gone}
        one.names = [alias for alias in one.names if alias not in gone]
        self.modules |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in one.names}
        return [one] if one.names else []

    def compound(self, one: Any) -> list[Any]:
        heads = [(name, self.part(getattr(one, name))) for name in ("test", "iter") if hasattr(one, name)]
        for name in {"body", "orelse", "finalbody"} & {*one._fields}:
            setattr(one, name, self.body(getattr(one, name)))
        if any(head is None for _name, head in heads):
            return one.orelse if isinstance(one, ast.If) else []
        for name, head in heads:
            setattr(one, name, head)
        if isinstance(one, ast.With):
            one.items = [item for item in one.items if not self.uses(item.context_expr)]
            return [one] if one.items and one.body else one.body
        if isinstance(one, ast.Try):
            one.handlers = [handler for handler in one.handlers if not (handler.type and self.uses(handler.type))]
            for handler in one.handlers:
                handler.body = self.body(handler.body) or [ast.Pass()]
            return [one] if one.body and (one.handlers or one.finalbody) else one.body
        if not one.body and one.orelse:
            one.body = [ast.Pass()]
        return [one] if one.body else []

    def assignment(self, one: Any) -> list[Any]:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target]
        value = one.value and self.part(one.value)
        hint = self.part(one.annotation) if isinstance(one, ast.AnnAssign) else ast.Name("object")
        if (one.value and not value) or self.uses(*targets) or not (value or hint):
            names = [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]
            self.gone |= {name for name in names if name != "self" and not isinstance(one, ast.AugAssign)}
            return []
        one.value = value
        if isinstance(one, ast.AnnAssign):
            one.annotation = hint or ast.Name("object")  # an attribute with a default keeps it
        return [one]

    def function(self, one: Any) -> list[Any]:
        arguments = [inner for inner in ast.walk(one.args) if isinstance(inner, ast.arg)]
        own = {argument.arg for argument in arguments}
        outside, had, answers = self.gone, len(one.body), _answers_of(one)
        if self.uses(*one.decorator_list) or (self.is_test and (own & outside or self.uses(*one.body))):
            return self.without(one)
        own |= {name.id for name in ast.walk(one) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
        self.gone = outside - own
        for argument in arguments:
            argument.annotation = argument.annotation and self.part(argument.annotation)
        one.body, one.returns = self.body(one.body), one.returns and self.part(one.returns)
        self.gone = outside
        return self.without(one) if _answers_of(one) < answers or _is_empty(one, had) else [one]

    def class_(self, one: ast.ClassDef) -> list[Any]:
        lost = {name for base in one.bases for name in self.lost_with(base)}
        bases, had, outside = [base for base in one.bases if self.part(base)], len(one.body), (self.gone, self.of_self)
        fields = [inner for inner in one.body if not isinstance(inner, _FUNCTION)]
        if self.uses(*one.decorator_list, *(fields if self.is_test else ())) or (one.bases and not bases):
            self.project.methods[one.name] = _methods_of(one) | lost
            return self.without(one)
        lost |= self.project.methods.get(one.name, set())
        self.gone, self.of_self, one.bases, count = set(self.gone), lost - _methods_of(one), bases, -1
        while count != len(self.of_self):
            count, methods = len(self.of_self), _methods_of(one)
            one.body = self.body(one.body)
            self.of_self |= methods - _methods_of(one)
        self.project.methods[one.name] = self.of_self
        self.gone, self.of_self = outside
        return self.without(one) if _is_empty(one, had) else [one]

    def lost_with(self, base: ast.expr) -> set[str]:
        return self.project.methods.get(ast.unparse(base), set())

    def without(self, one: Any) -> list[Any]:
        self.gone.add(one.name)
        return []

    def part(self, node: Any, *, is_row: bool = False) -> Any:
        """Return the expression without what is gone, or None if it cannot do without."""
        if not self.uses(node):
            return node
        if self.is_gone(node) or (is_row and isinstance(node, ast.Tuple)):  # a row of a table goes as a whole
            return None
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                node.elts = [item for one in node.elts if (item := self.part(one, is_row=True))]
                return node if node.elts else None
            case ast.Dict():
                pairs = [
                    (key, self.part(value, is_row=True)) for key, value in zip(node.keys, node.values, strict=True)
                ]
                pairs = [(key, value) for key, value in pairs if value and not (key and self.uses(key))]
                node.keys, node.values = [key for key, _value in pairs], [value for _key, value in pairs]
                return node if pairs else None
            case ast.Call():
                for one in node.keywords:
                    one.value = self.part(one.value)
                node.keywords = [one for one in node.keywords if one.value]
                node.func, node.args = self.part(node.func), [self.part(one) for one in node.args]
                return node if node.func and None not in node.args else None
            case ast.JoinedStr():
                node.values = [self.part(one) for one in node.values]
                return node if None not in node.values else None
            case ast.BoolOp():
                parts = [self.part(one) for one in node.values]
                node.values = [one for one in parts if one]
                if not node.values or (isinstance(node.op, ast.And) and None in parts):
                    return None
                return node if len(node.values) > 1 else node.values[0]
            case ast.BinOp(op=ast.BitOr() | ast.Add()):
                sides = self.part(node.left), self.part(node.right)
                node.left, node.right = sides
                return node if all(sides) else sides[0] or sides[1]
            case ast.IfExp():
                node.test, node.body, node.orelse = map(self.part, (node.test, node.body, node.orelse))
                return node if node.test and node.body and node.orelse else node.orelse or (node.test and node.body)
            case ast.UnaryOp(op=ast.Not()):
                node.operand = self.part(node.operand)
                return node if node.operand else ast.Constant(True)
            case ast.Starred() | ast.FormattedValue() | ast.Attribute():
                node.value = self.part(node.value)
                return node if node.value else None
        return None

    def is_gone(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.gone
            case ast.Constant(value=str() as text):
                return text in self.project.tables or text in self.project.modules
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return name in self.of_self
            case ast.Attribute(value=ast.Attribute(attr="objects"), attr=verb):
                return ("pulse_django.managers", verb) in self.project.names
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return (self.modules.get(module, ""), name) in self.project.names
        return False

    def uses(self, *nodes: ast.AST) -> bool:
        return any(self.is_gone(inner) for node in nodes for inner in ast.walk(node))


def _methods_of(one: ast.ClassDef) -> set[str]:
    return {inner.name for inner in one.body if isinstance(inner, _FUNCTION)}


def _answers_of(one: Any) -> int:
    return sum(isinstance(inner, ast.Return) for inner in one.body)


def _is_empty(one: Any, had: int) -> bool:
    """Say whether a function or a class has lost its last statement. A docstring may be left."""
    left = [inner for inner in one.body if not isinstance(inner, ast.Pass)]
    left = [inner for inner in left if not (isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant))]
    return len(one.body) < had and not left


def _module_of(file: Path, folder: Path) -> str:
    return ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
