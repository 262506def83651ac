"""New records and copies of records: those of their classes, and of `dataclasses.replace`."""

import dataclasses
from typing import Any

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Intent, Reply, ToolSteering
from gateway.contracts.records import make, replace

CALLER = Caller("ada", "team", frozenset(("context",)))


def test_make_builds_the_same_record_as_its_class() -> None:
    given: dict[str, Any] = {"id": "run_1", "body": {"model": "m"}, "caller": CALLER, "chain": "default", "dry": True}
    made = make(Exchange, **given)
    assert made == Exchange(**given) and repr(made) == repr(Exchange(**given)) and vars(made) == vars(Exchange(**given))
    assert make(ToolSteering).exact_tools is not make(ToolSteering).exact_tools
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.dry = False  # type: ignore[misc]


@pytest.mark.parametrize(
    "given",
    [
        {"id": "run_1", "body": {}, "caller": CALLER},
        {"id": "run_1", "body": {}, "caller": CALLER, "chain": "default", "chains": ()},
        {"id": "run_1", "body": {}, "caller": CALLER, "chains": ()},
    ],
)
def test_a_field_that_is_missing_or_unknown_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="chain"):
        make(Exchange, **given)


def test_replace_returns_a_copy_and_keeps_the_original() -> None:
    record = Exchange(id="run_1", body={"model": "m"}, caller=CALLER, chain="default")
    copy = replace(record, notes=("Be brief.",), dry=True)
    assert copy == dataclasses.replace(record, notes=("Be brief.",), dry=True)
    assert (record.notes, record.dry) == ((), False)
    assert copy.body is record.body


def test_replaced_copy_is_frozen() -> None:
    copy = replace(Exchange(id="run_1", body={}, caller=CALLER, chain="default"), dry=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.dry = False  # type: ignore[misc]


def test_an_unknown_field_is_named() -> None:
    async def release() -> None: ...

    with pytest.raises(TypeError, match="Reply has no field 'caches'"):
        replace(Reply(release, release), cache="hit", caches="miss")  # type: ignore[arg-type,call-arg]


@pytest.mark.parametrize("record", [None, Intent("normal", "normal")])
def test_replace_names_the_type_of_a_wrong_record(record: Any) -> None:
    """A plugin's author reads it, such as of a stage that returns nothing."""
    with pytest.raises(TypeError, match=f"{type(record).__name__} is no exchange and no reply"):
        replace(record, reply="No.")
