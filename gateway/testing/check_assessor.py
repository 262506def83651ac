"""The check of an assessor: a total, pure function that lets only what it knows run by itself."""

import inspect
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, get_args

from gateway.contracts.plugin import Plugin
from gateway.contracts.risk import Action, Basis, RiskAssessor, Verdict
from gateway.contracts.storage.store import Json
from gateway.testing.contract import ContractError, Subject, load_subject
from gateway.testing.host import FakeHost

_DEEP: Final = 200
_LONG: Final = 100_000
#: JSON values that a schema would hardly let pass.
ODD: Final[tuple[Any, ...]] = (None, True, -1, 10**40, 1e308, [], [None], {}, {"a": {"b": []}})
#: Texts that a parser may stumble over.
TEXTS: Final = ("", " ", "\0", "\n", "\ud800", "\u202e", "'", '"', "\\", "$(", "../..", "%s", "{}", "x" * _LONG)
#: Python's audit events of reading, writing, looking up and starting something.
_EFFECTS: Final = ("open", "os.", "shutil.", "socket.", "sqlite3.", "subprocess.", "urllib.", "ctypes.dlopen")


def check_assessor(
    plugin: str | Plugin[Any, Any],
    config: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
    harmless: Iterable[Json] = (),
    asked: Iterable[Json] = (),
) -> RiskAssessor:
    """Check an assessor against the rules of docs/plugins.md, and return one for further tests.

    `plugin` is a name as after `use:`, with the `folder` of your plugins if it is there, or a `Plugin`; `config` is its
    `with:`. Calls with the arguments `harmless` must run by themselves, and calls with the arguments `asked` must not.
    Give both: the check makes odd arguments of them. Raises ContractError.
    """
    one = load_subject("assessors", plugin, config, folder)
    assessor: RiskAssessor = one.build(FakeHost())
    again: RiskAssessor = one.build(FakeHost())
    lets, asks = list(harmless), list(asked)
    for arguments in lets:
        if (verdict := _check_verdict(one, assessor, again, arguments)).decision != "auto":
            instead = "correct the assessor, or move these arguments to `asked`"
            one.fail("lets what is harmless run", f"{arguments} is {verdict}", instead, at=assessor)
    for arguments in asks:
        if (verdict := _check_verdict(one, assessor, again, arguments)).decision == "auto":
            instead = "correct the assessor, or move these arguments to `harmless`"
            one.fail("asks about everything else", f"{arguments} is {verdict}", instead, at=assessor)
    for arguments in _iterate_odd_arguments([*lets, *asks]):
        _check_verdict(one, assessor, again, arguments)
    for arguments in lets:
        _check_odd_types(one, assessor, arguments)
    return assessor


def _check_odd_types(one: Subject, assessor: RiskAssessor, arguments: Json) -> None:
    """Check that no argument of another type is harmless only because the assessor does not look at its type."""
    for name, value in arguments.items():
        odd: Any = {"no_such_key": [value]} if not isinstance(value, dict) else [value]
        if assessor.assess({**arguments, name: odd}).decision == "auto":
            found = f"{name} = {str(odd)[:200]} is auto"
            one.fail("asks about odd arguments", found, "check the type of each argument that you read", at=assessor)


def _iterate_odd_arguments(samples: list[Json]) -> Iterator[Json]:
    """Yield arguments that no honest model sends: odd values alone, and at each place of the samples."""
    deep: Any = "x"
    for _ in range(_DEEP):
        deep = [deep]
    values = (*ODD, *TEXTS, deep)
    names = sorted({name for sample in samples for name in sample}) or ["text"]
    yield {}
    for name in (*names, "", "no_such_argument", "\ud800"):
        yield from ({name: value} for value in values)
    for sample in samples:
        yield {**sample, "no_such_argument": 1}
        yield from ({other: value for other, value in sample.items() if other != name} for name in sample)
        yield from ({**sample, name: value} for name in sample for value in values)


def _check_verdict(one: Subject, assessor: RiskAssessor, again: RiskAssessor, arguments: Json) -> Verdict:
    """Return the verdict on some arguments, after every rule that holds for all of them."""
    before, shown = deepcopy(arguments), str(arguments)[:200]
    first: Any
    try:
        first = assessor.assess(arguments)
        if inspect.iscoroutine(first):
            first.close()
            instead = "judge the arguments alone, in a `def`"
            one.fail("is synchronous", "assess is an `async def`", instead, at=assessor)
        with _EFFECT_WATCH as seen:
            verdict = assessor.assess(arguments)
        third = again.assess(arguments)
    except ContractError:
        raise
    except Exception as error:
        one.fail("never raises", f"{shown} raised {error!r}", 'return Verdict("confirm", "default", ...)', at=assessor)
    if arguments != before:
        found = f"{str(before)[:200]} became {str(arguments)[:200]}"
        one.fail("does not change its arguments", found, "work on a copy", at=assessor)
    if not isinstance(first, Verdict):
        one.fail("returns a Verdict", f"{shown} is {first!r}", "return a gateway.plugin.Verdict", at=assessor)
    if seen:
        found = f"{shown} led to {seen[0]}"
        one.fail("has no effects", found, "judge the arguments alone; read lists when the plugin is built", at=assessor)
    if not first == verdict == third:
        found = f"{shown} is {first}, then {verdict}, and {third} to a second assessor"
        one.fail("is deterministic", found, "keep nothing of earlier calls, and use no time or chance", at=assessor)
    _check_words(one, assessor, shown, first)
    return first


def _check_words(one: Subject, assessor: RiskAssessor, shown: str, verdict: Verdict) -> None:
    """Check that a verdict names its decision, its assessor and its rule."""
    found, actions = f"{shown} is {verdict}", set(get_args(Action)) - {"error"}
    if verdict.decision not in actions or verdict.basis not in get_args(Basis):
        instead = 'return auto with the basis "whitelist"; confirm or deny with "default"'
        one.fail("uses the words of verdicts", found, instead, at=assessor)
    if (verdict.decision == "auto") != (verdict.basis == "whitelist"):
        instead = 'the basis of auto is "whitelist", and of nothing else'
        one.fail("uses the words of verdicts", found, instead, at=assessor)
    if not (isinstance(verdict.rule, str) and verdict.rule and isinstance(verdict.reason, str)):
        one.fail("names its rule", found, "give each verdict the name of its rule, and a reason", at=assessor)


class _EffectWatch:
    """Collect Python's audit events of effects within `with`. The hook cannot be removed: there is one per process."""

    def __init__(self) -> None:
        self._seen: list[str] | None = None
        self._is_installed = False
        self._thread = 0

    def __enter__(self) -> list[str]:
        if not self._is_installed:
            sys.addaudithook(self._note_event)
            self._is_installed = True
        self._thread = threading.get_ident()
        self._seen = []
        return self._seen

    def __exit__(self, *_: object) -> None:
        self._seen = None

    def _note_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._seen is not None and self._thread == threading.get_ident() and event.startswith(_EFFECTS):
            self._seen.append(f"{event}{arguments}")


_EFFECT_WATCH: Final = _EffectWatch()
