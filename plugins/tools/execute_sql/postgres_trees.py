"""Expressions as PostgreSQL stores them (`pg_node_tree`): the objects that one names, by their numbers.

A view, a policy, a constraint or an index holds such a tree. Numbers below 16384 are the server's own objects.
"""

import re
from dataclasses import dataclass
from typing import Final

#: The server's own ways to take a sample (TABLESAMPLE) have smaller numbers.
_FUNCTIONS: Final = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid|hashfuncid) (\d+)|:tsmhandler (\d{5,})")
#: Comparing rows, sorting and grouping name operators only.
_OPERATORS: Final = re.compile(r":(?:opno|eqop|sortop) (\d+)|:opnos \(o ([\d ]+)\)")
_RELATIONS: Final = re.compile(r":relid (\d+)")
#: Types that a value is turned into; a column keeps the one it has (`vartype`). RETURNING of JSON writes `typid`.
_TYPES: Final = re.compile(r":(?!vartype )(?:[a-z_]*type[a-z]*|typid) (?:(\d+)|\(o ([\d ]+)\))")


@dataclass(frozen=True, slots=True)
class TreeObjects:
    """The numbers of the objects that trees name."""

    functions: list[int]
    operators: list[int]
    relations: list[int]
    types: frozenset[int]


def parse_trees(trees: str) -> TreeObjects:
    """Return the objects that these trees name. The trees follow one another in the text."""
    return TreeObjects(
        functions=sorted(_read_numbers(_FUNCTIONS, trees)),
        operators=sorted(_read_numbers(_OPERATORS, trees)),
        relations=sorted(_read_numbers(_RELATIONS, trees)),
        types=frozenset(_read_numbers(_TYPES, trees)),
    )


def _read_numbers(pattern: re.Pattern[str], trees: str) -> set[int]:
    groups = (group for match in pattern.finditer(trees) for group in match.groups() if group)
    return {int(number) for group in groups for number in group.split()}
