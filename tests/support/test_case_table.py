"""Cases that share one item of pytest are all checked, and those that need an item each have it."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case_table import check_each, merge_cases, read_cases

HARMLESS = ("caplog", "event_loop_policy", "nothing_fails_unseen", "nothing_stays", "request")
table = pytest.mark.parametrize("number", [1, 2])


@pytest.fixture
def module(request: pytest.FixtureRequest) -> pytest.Module:
    found = request.node.getparent(pytest.Module)
    assert found is not None
    return found


def test_every_failing_case_is_named() -> None:
    """Those behind it are checked, too; each has its own trace."""
    seen: list[object] = []

    def fails_at_odd(number: int, text: str) -> None:
        seen.append(number)
        if number == 3:
            pytest.fail("no three")
        assert number % 2 == 0, text

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases of fails_at_odd") as raised:
        check_each(fails_at_odd, [{"number": number, "text": "x" * number} for number in range(1, 5)])
    assert seen == [1, 2, 3, 4]
    notes = [failure.__notes__ for failure in raised.value.exceptions]
    assert notes == [["case 1 of 4: number=1, text='x'"], ["case 3 of 4: number=3, text='xxx'"]]


@pytest.mark.parametrize(
    ("mark", "cases"),
    [
        (pytest.mark.parametrize("a", [1, (2,)]), [{"a": 1}, {"a": (2,)}]),
        (pytest.mark.parametrize(("a", "b"), [(1, 2), "cd"]), [{"a": 1, "b": 2}, {"a": "c", "b": "d"}]),
        (pytest.mark.parametrize(("a", "b"), [pytest.param(1, 2, id="c")]), [{"a": 1, "b": 2}]),
        (pytest.mark.parametrize(argnames="a", argvalues={1: 2}, ids=["c"]), [{"a": 1}]),
        (pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.soak)]), None),
        (pytest.mark.parametrize("a", iter([1, 2])), None),
        (pytest.mark.parametrize("a", [1, 2], indirect=True), None),
        (pytest.mark.parametrize("a", [1, 2], scope="module"), None),
    ],
)  # fmt: skip
def test_parameters_are_read_as_pytest_reads_them(
    mark: pytest.MarkDecorator, cases: list[dict[str, object]] | None
) -> None:
    """What says more of a case than its parameters is left to pytest."""
    assert read_cases(mark.mark) == cases


def test_table_without_fixtures_is_one_item(module: pytest.Module) -> None:
    """It has the marks of the test, and runs it with every combination."""
    seen: list[tuple[int, str]] = []

    @table
    @pytest.mark.parametrize("text", ["a", "b"])
    @pytest.mark.soak
    def test_pairs(number: int, text: str) -> None:
        seen.append((number, text))

    item = merge_cases(module, "test_pairs", test_pairs, HARMLESS)
    assert item is not None and item.name == "test_pairs"
    assert [mark.name for mark in item.own_markers] == ["soak"]
    item.obj()
    assert sorted(seen) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_other_tests_have_an_item_for_each_case(module: pytest.Module, tmp_path: object) -> None:
    """With a fixture, a loop, generated examples, one case alone, or another name."""

    async def test_awaiting(number: int) -> None: ...

    def test_with_a_fixture(number: int, tmp_path: object) -> None: ...

    @given(st.integers())
    def test_generated(number: int, example: int) -> None: ...

    def test_used(number: int) -> None: ...

    def plain(number: int) -> None: ...

    tests: list[Callable[..., Any]] = [test_awaiting, test_with_a_fixture, test_generated, plain]
    tests.append(pytest.mark.usefixtures("tmp_path")(test_used))
    assert [merge_cases(module, test.__name__, table(test), HARMLESS) for test in tests] == [None] * 5
    assert merge_cases(module, "test_used", pytest.mark.parametrize("number", [1])(test_used), HARMLESS) is None
    assert merge_cases(module, "test_used", inspect, HARMLESS) is None
