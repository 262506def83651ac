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

#: The verbs of the code base: a function begins with one of them. Add one if none of these says it.
VERBS = """
abandon abort accept acquire act adapt add adjust admit adopt advance advise allow analyze anchor annotate
announce answer append apply approve arrive ask assemble assess assign attach attempt audit authenticate
authorise authorize await beat become begin bind block bound bring buffer build bypass call cancel capitalize
carry catch challenge change charge check choose claim classify clean clear clip close collect combine commit
compact compare compile complain complete compose compute configure confirm connect construct contain continue control
convert copy correct cost count cover create cut decay dechunk decide declare decode decompress defer defuse
delete deliver demand describe detect digest disable discard disconnect dispatch distribute do draft drain
draw drip drive drop dump echo embed emit encode end enhance enqueue ensure enter escape estimate evaluate
examine exchange excuse execute expand expect expire explain export extend extract fail feed fence fetch fill
filter find fingerprint finish fit flatten flush fold follow forget fork format forward frame free freeze
gather generate get give grant group guard guess hand handle handshake hang harden hash hold identify ignore
import indent index init inline insert install interrupt intersect introspect invite issue iter iterate join
judge keep kill learn leave lex limit link list listen load locate log look lose lower main maintain make map
mark mask match measure mend merge migrate mount name negotiate normalize note notify nudge number observe
open operate order pace pack pad paginate pair parenthesize park parse path pause peek pick pin ping place
plan poll post prepare prepend preview print probe process promote prune publish pump put query queue quote raise rank
reach read reap rebuild recall receive recognise reconcile record redact redirect refer refresh refuse
register rehearse reissue reject rejoin rejudge relay release reload remember remove rename render renew
reopen repeat replace replan replay report request require reraise reserve reset resolve respond restart
restore restrict resume retain retell retire retry return reveal revoke rewrite roll rotate route run save
scale scan schedule scrape screen seal search see select send serialize serve set settle shape share shorten
show shut shutdown sign signal silence simplify simulate skip sort spawn split start stat steer step stop
store stream strip subscribe substitute suggest sum summarise supervise swap sweep switch sync take tally tee
tell terminate thaw time tokenize trace translate trim truncate try unescape unpack unquote unseal update
upload use validate vary verify vote wait wake walk warn watch withdraw work wrap write yield
"""
#: Words before an event, a source or a result: `on_closed`, `from_row`, `to_json`, `with_status`.
PARTICLES = {"from", "on", "to", "with", "without"}
#: First words of functions that return whether something is so, besides verbs in the third person (`holds_more`).
PREDICATES = {"are", "can", "cannot", "could", "do", "have", "may", "must", "should"}
#: Decorators that make a noun of a function where it is used, or a rule that pydantic checks.
NO_ACTIONS = {
    *("cached_property", "contextmanager", "asynccontextmanager", "fixture", "property", "setter"),
    *("field_validator", "model_validator"),
}

#: Functions that keep such a name, each for its reason.
FUNCTIONS = {
    "aclose": "as asynchronous streams and clients have it",
    "assessor_options": "a keyword of `Plugin`",
    "built_in": "the adjective of the field",
    "closed": "as asyncio's transports and futures have it",
    "connection_lost": "as asyncio's protocols have it",
    "connection_made": "as asyncio's protocols have it",
    "cursor": "as asyncpg has it",
    "data_received": "as asyncio's protocols have it",
    "eof_received": "as asyncio's protocols have it",
    "examined_options": "a keyword of `Plugin`",
    "fetchval": "as asyncpg has it",
    "half_close": "the term of TCP",
    "loads": "as Python's json has it",
    "monotonic": "as Python's time has it",
    "obstacle": "the contract of tools",
    "pipe_data_received": "as asyncio's protocols have it",
    "place_sha256": "the contract of tools",
    "problem": "the contract of stores",
    "reaches": "a keyword of `Plugin`",
    "recv": "as Python's sockets have it",
    "refusal": "the contract of tools",
    "time": "as Python's time has it",
    "writelines": "as asyncio's transports have it",
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


def begins_with_verb(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the name of a function says what it does, or whether something is so."""
    first = function.name.strip("_").split("_")[0]
    returned = "" if function.returns is None else ast.unparse(function.returns)
    is_predicate = "bool" in returned and (first in PREDICATES or first.endswith("s"))
    return is_predicate or first in {*VERBS.split(), *PARTICLES, "has", "is"}


def is_no_action(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a decorator makes a function something else: a property, a context manager, a fixture, a rule."""
    found = {part.id for each in function.decorator_list for part in ast.walk(each) if isinstance(part, ast.Name)}
    found |= {
        part.attr for each in function.decorator_list for part in ast.walk(each) if isinstance(part, ast.Attribute)
    }
    return not found.isdisjoint(NO_ACTIONS)


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


def test_functions_begin_with_a_verb() -> None:
    """A reader knows from the name alone what a function does (`build_view`) or answers (`is_open`, `wants_json`)."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in (*FILES, *sorted(ROOT.glob("bench/*.py")))
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__")
        if not is_no_action(node) and not begins_with_verb(node) and node.name.strip("_") not in FUNCTIONS
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
