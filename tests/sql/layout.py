"""Write a statement so that it can be read and compared: in the lines in which it is sent, with names for parameters.

Comments and needless quotes go. Lines that are too long, as the ORM's are, break before a clause.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

WIDTH = 120
STEP = "    "

_PIECE = re.compile(
    r"('(?:[^']|'')*'|\$\$.*?\$\$)|\s*--[^\n]*|;|\"([a-z_][a-z0-9_]*)\"|\$\d+|%%|(?<=pulse_django_job_)\d{8}", re.DOTALL
)
# How many values a list has, and how many rows, is none of the statement's.
_LISTS = re.compile(r"\bIN \((%s|-?\d+)(?:, (?:%s|-?\d+))+\)")
_ROWS = re.compile(r"\bVALUES (\((?:[^()]|\([^()]*\))*\))(?:, \((?:[^()]|\([^()]*\))*\))+")
# On Citus a statement of a limited claim names what the one before it said.
_SAID = re.compile(r"'(?:\{[\w,]*\}|-?\d+|true|false|[-\d]+ [\d:.+]+)'::text(?!\[)")


def statements(message: str) -> Iterator[str]:
    """Yield each statement of a message, without names for its parameters."""

    def plain(found: re.Match[str]) -> str:
        if found[1]:
            return found[1].replace(";", "\0")
        if found[2]:
            return found[2]
        return {";": "\1", "$": "%s", "%": "%"}.get(found[0][0], "<day>" if found[0].isdigit() else "")

    for text in _PIECE.sub(plain, message).split("\1"):
        text = "\n".join(line.rstrip() for line in text.replace("\0", ";").strip().splitlines() if line.strip())
        if text:
            text = _SAID.sub("%(said)s::text", _LISTS.sub(r"IN (\1, ...)", text))
            yield _ROWS.sub(r"VALUES \1", text)


# White space, the names of parameters, and literals, in which there are neither.
_UNSAID = re.compile(r"('(?:[^']|'')*')|%\(\w+\)s|%s|(?<![:\w\[]):[a-z]\w*|(\s+)")
# A job is written with those columns that it has values for. Each combination is a text, and no other statement.
_COLUMNS = re.compile(
    r"((?:INSERTINTO|COPY)pulse_django_job_hot(?:ASjob)?)\([^()]*\)"
    r"(?:VALUES\((?:[^()]|\([^()]*\))*\)|SELECT.*?(?=FROM(?:taken|new)))?"
)


# Querysets spell some of their values: a number of rows, and statuses. A new job that may expire says
# when. Which jobs move to another shard is what an operator asks for.
_CONSTANTS = re.compile(
    r"(LIMIT|OFFSET)\d+|(pulse_django_job(?:_hot)?\.status::text)(?:=|IN)\(?'\w+'(?:,'\w+')*\)?"
    r"|(RETURNINGid,created_at,next_run_at),(?:NULL|expires_at)|(WITHpickedASMATERIALIZED\().*?(?=\),goneAS\()"
)


def key_of(statement: str) -> str:
    """Return what tells a statement from others."""
    text = _UNSAID.sub(lambda found: found[1] or ("" if found[2] else "?"), statement.replace(", ...", ""))
    return _CONSTANTS.sub(lambda found: found[found.lastindex or 0], _COLUMNS.sub(r"\1()", text))


# --------------------------------------------------------------------------------------------------------------- lines

_LITERAL = re.compile(r"'(?:[^']|'')*'")
_CLAUSE = re.compile(
    r"(?<=[( ])(?=(?:SELECT|WHERE|AND|GROUP BY|ORDER BY|LIMIT|FOR (?:NO KEY )?UPDATE|VALUES|RETURNING|ON CONFLICT|SET"
    r"|UNION|(?:LEFT |CROSS |INNER )(?:OUTER )?JOIN)\b|(?<!DISTINCT )(?<!ROWS )FROM\b)"
)


def laid_out(statement: str) -> str:
    """Return what the files have of a statement."""
    return "\n".join(short for line in _named(statement).splitlines() for short in _broken(line))


def _broken(line: str) -> Iterator[str]:
    if len(line) <= WIDTH:
        yield line
        return
    depth = (len(line) - len(line.lstrip())) // len(STEP)
    line = _LITERAL.sub(lambda found: found[0].replace(" ", "\0"), line.strip()).replace(" AS ", "\0AS\0")
    for part in _CLAUSE.split(line):
        margin = STEP * (depth + part.startswith("AND"))
        lines = textwrap.TextWrapper(
            WIDTH, margin, margin + STEP, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
        )
        yield from (short.replace("\0", " ") for short in lines.wrap(part))
        depth += part.count("(") - part.count(")")


# ------------------------------------------------------------------------------------------------- names of parameters

# Lists whose items get the names of columns.
_COLUMNS_BEFORE = re.compile(
    r"(?:INSERT INTO \w+(?: AS \w+)?|WITH RECURSIVE \w+) \(([^()]*)\)\s*(?:VALUES \(|(?:AS \(\s*)?SELECT\s)"
)
_CALLED = re.compile(r"(?:ROWS FROM|unnest|FROM) ?\((?:SELECT )?")
_COLUMNS_BEHIND = re.compile(r"\s*(?:WITH ORDINALITY )?AS \w+ \(([^()]*)\)")
_ITEM = re.compile(r"'[^']*'|[(),]|%s|\b(?:FROM|RETURNING|WHERE)\b")

_COLUMN, _CAST = r"(?<![%:\w])(?:\w+\.)?(?P<name>[a-z]\w*)\b(?!\()(?:::[\w\[\]]+)*", r"(?:::[\w\[\]]+)*"
_RULES = [
    re.compile(rf"{_COLUMN}\)? ?(?:=|<>|<=?|>=?|\+|-|->>?|&&|@>|\?|~|LIKE|IN|NOT IN) ?(?:(?:ANY|ALL) ?)?\(*(?P<at>%s)"),
    re.compile(rf"\({_COLUMN}, (?P<at>%s)"),  # COALESCE and its like
    re.compile(rf"\((?P<at>%s){_CAST}, {_COLUMN}"),
    re.compile(rf"(?P<at>%s){_CAST}\)* AS (?P<name>[a-z]\w*)"),
    re.compile(r"(?P<name>LIMIT|OFFSET) (?P<at>%s)"),
]
_AGE = re.compile(r"_timestamp\(\)\)? - $")
_PART_OF = re.compile(r"(?:(?!\b(?:FROM|WHERE|SELECT|SET|AND)\b).){,300}?\bAS (?!MATERIALIZED)([a-z]\w*)", re.DOTALL)


def _named(statement: str) -> str:
    """Give parameters the names of the columns that they become, or are compared with; a second one gets a number."""
    names: dict[int, str] = {}
    for found in _COLUMNS_BEFORE.finditer(statement):
        _name_items(names, statement, found.end(), found[1].split(", "))
    for found in _CALLED.finditer(statement):
        if columns := _COLUMNS_BEHIND.match(statement, _end_of_list(statement, found.end())):
            _name_items(names, statement, found.end(), columns[1].split(", "))
    for rule in _RULES:
        for found in rule.finditer(statement):
            names.setdefault(found.start("at"), found["name"].lower())
    used = Counter[str]()

    def name(found: re.Match[str]) -> str:
        if found[1] or found[2]:
            return found[1] or f":{found[2]}"
        known = names.get(found.start()) or ("age" if _AGE.search(statement, 0, found.start()) else "")
        if not known and (part_of := _PART_OF.match(statement, found.end())):
            known = part_of[1]
        used[known := known or "value"] += 1
        return f":{known}" if used[known] == 1 else f":{known}_{used[known]}"

    return re.sub(r"('(?:[^']|'')*')|%\((\w+)\)s|%s", name, statement)


def _name_items(names: dict[int, str], statement: str, begin: int, columns: Sequence[str]) -> None:
    depth, place = 0, 0
    for found in _ITEM.finditer(statement, begin):
        mark = found[0]
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0 or (depth == 0 and mark.isalpha()) or place == len(columns):
            return
        if mark == "%s":
            names.setdefault(found.start(), columns[place].strip())
        place += mark == "," and depth == 0


def _end_of_list(statement: str, begin: int) -> int:
    depth = 1
    for found in _ITEM.finditer(statement, begin):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return len(statement)
