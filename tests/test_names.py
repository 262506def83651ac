"""The rules for names, checked: functions are verb phrases, classes nouns, and a class name has one meaning."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path
    for path in (*ROOT.glob("gateway/**/*.py"), *ROOT.glob("plugins/**/*.py"))
    if "gateway/cli/templates/" not in str(path)
)

#: Nouns and verbs that only look like a participle.
NO_PARTICIPLES = {"embed", "feed", "finding", "need", "ping", "ring", "seed", "speed", "string", "thing"}
#: Participles that do not end in -ed.
IRREGULAR = {
    *("begun", "bound", "brought", "built", "caught", "chosen", "drawn", "found", "given", "gone", "heard", "held"),
    *("kept", "known", "left", "lost", "made", "met", "paid", "seen", "sent", "shown", "sold", "spent", "taken"),
    *("thought", "told", "won", "written"),
}
PREPOSITIONS = "after as at before behind beside besides by for from in into like of on over than to under with without"
ENDS_IN_PREPOSITION = re.compile(rf"_(?:{'|'.join(PREPOSITIONS.split())})$")

#: Functions that keep such a name, each for its reason.
FUNCTIONS = {
    "built_in": "the adjective of the field",
    "closed": "as asyncio's transports and futures have it",
    "asked": "set by a subclass, read as a field",
    "ended": "set by one implementation, read as a field",
    "paused": "set by one implementation, read as a field",
    "received": "set by one implementation, read as a field",
    "waiting": "set by one implementation, read as a field",
    "draining": "the state of a listener, as the field calls it",
    "streaming": "the state of a transaction, as the field calls it",
    "sent": "a field of the page of upstreams",
    "is_open_to": "reads as the sentence that it answers",
    "is_open_for": "reads as the sentence that it answers",
    "may_end_with": "reads as the sentence that it answers",
}
#: Class names with several meanings, each for its reason.
SEVERAL = {"Config": "each plugin has the class of its configuration"}


def is_participle(name: str) -> bool:
    """Return whether a name is one word, and that a participle or a gerund."""
    word = name.lower()
    return word not in NO_PARTICIPLES and (word in IRREGULAR or re.fullmatch(r"[a-z]+(?:ed|ing)", word) is not None)


def definitions(*kinds: type[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the path and the name, without leading underscores, of each definition of these kinds."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, kinds) and not node.name.startswith("__"):  # type: ignore[attr-defined]
                yield str(path.relative_to(ROOT)), node.name  # type: ignore[attr-defined]


def test_functions_are_verb_phrases() -> None:
    """None is a lone participle or gerund (`limited`), and none ends in a preposition (`run_of`)."""
    found = [
        (path, name)
        for path, name in definitions(ast.FunctionDef, ast.AsyncFunctionDef)
        if is_participle(name.strip("_")) or ENDS_IN_PREPOSITION.search(name)
        if name.strip("_") not in FUNCTIONS
    ]
    assert found == []


def test_every_exception_is_one() -> None:
    """Each function that keeps such a name is there."""
    names = {name.strip("_") for _, name in definitions(ast.FunctionDef, ast.AsyncFunctionDef)}
    assert FUNCTIONS.keys() - names == set()


def test_classes_are_nouns() -> None:
    """None is a lone participle (`Told`)."""
    found = [
        (path, name)
        for path, name in definitions(ast.ClassDef)
        if name.strip("_").istitle() and is_participle(name.strip("_"))
    ]
    assert found == []


def test_a_class_name_has_one_meaning() -> None:
    """No public class name stands in two modules."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path, name in definitions(ast.ClassDef):
        if not name.startswith("_"):
            modules[name].add(path)
    assert {name: paths for name, paths in modules.items() if len(paths) > 1 and name not in SEVERAL} == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("limited", True), ("Told", True), ("noting", True), ("feed", False), ("get_run", False), ("relayed_head", False)],
)
def test_a_participle_is_recognised(name: str, expected: bool) -> None:
    """The rule sees one word only: a participle before a noun is a good name."""
    assert is_participle(name) is expected
