"""A test that needs its parameters alone is one item of pytest: an item costs more than most cases of a parser do.

Each item is collected, set up, and reported three times from one process of pytest-xdist to another. Ten thousand of
the cases need nothing that an item gives: no fixture, no event loop, no mark of their own.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product

import pytest

Case = dict[str, object]

#: What a failing case is shown of its parameters.
SHOWN_CHARS = 300


def merge_cases(
    collector: pytest.Module | pytest.Class, name: str, test: object, harmless: Collection[str]
) -> pytest.Function | None:
    """Return one item that checks every case of the test, or None for a test that wants an item for each.

    `harmless` are the fixtures that may be set up once for all cases.
    """
    if not isinstance(collector, pytest.Module) or not collector.funcnamefilter(name) or not inspect.isfunction(test):
        return None
    if inspect.iscoroutinefunction(test) or hasattr(test, "hypothesis") or any(collector.iter_markers("parametrize")):
        return None
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    sets = [cases for mark in marks if (cases := read_cases(mark)) is not None]
    if not marks or len(sets) < len(marks):
        return None
    cases = [{name: value for part in parts for name, value in part.items()} for parts in product(*reversed(sets))]
    if len(cases) < 2 or cases[0].keys() != inspect.signature(test).parameters.keys():
        return None

    def check_cases() -> None:
        check_each(test, cases)

    check_cases.pytestmark = [mark for mark in test.pytestmark if mark not in marks]  # type: ignore[attr-defined]
    item = pytest.Function.from_parent(collector, name=name, callobj=check_cases)
    assert isinstance(item, pytest.Function)
    return item if set(item.fixturenames) <= set(harmless) else None


def read_cases(mark: pytest.Mark) -> Sequence[Case] | None:
    """Return the parameters of each case of `pytest.mark.parametrize`, or None: it says more of them than that."""
    try:
        names, values = inspect.signature(_parametrize).bind(*mark.args, **mark.kwargs).args[:2]
    except TypeError:
        return None
    if isinstance(values, Iterator):
        return None  # it is read once
    keys = (names,) if isinstance(names, str) else tuple(names)
    cases = []
    for value in values:
        if isinstance(value, type(pytest.param())):
            if value.marks:
                return None
            row: Sequence[object] = value.values
        else:
            row = (value,) if isinstance(names, str) else value
        cases.append(dict(zip(keys, row, strict=True)))
    return cases


def _parametrize(argnames: object, argvalues: object, *, ids: object = None) -> None:
    """Take what cases that share an item may have."""


def check_each(test: Callable[..., None], cases: Sequence[Case]) -> None:
    """Run the test with each case, also behind one that fails. Raises what failed as a group, named by its case."""
    failures: list[BaseException] = []
    for number, case in enumerate(cases, 1):
        try:
            test(**case)
        except (Exception, pytest.fail.Exception) as failure:
            shown = ", ".join(f"{name}={value!r}" for name, value in case.items())
            failure.add_note(f"case {number} of {len(cases)}: {shown[:SHOWN_CHARS]}")
            failures.append(failure)
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases of {test.__name__}", failures)
