"""The store in a database server as the doctor sees it: read, and left as it is."""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.doctor.findings import Finding
from gateway.cli.doctor.store import examine_store, judge_state
from gateway.contracts.storage.store import ServerState
from gateway.testing.ports import free_port
from tests.cli.doctor.examined import loaded

STATE = ServerState(
    connection_limit=97, clock_ahead_s=0.2, schema_version=3, known_version=3, schema_problem=None, gateways=2
)


async def examined(store: str, folder: Path, *, more: str = "") -> dict[str, Finding]:
    found = examine_store(loaded(f"store: {store}\n{more}", folder=folder))
    return {finding.about: finding async for finding in found}


async def test_doctor_fails_a_server_that_is_away(tmp_path: Path) -> None:
    (finding,) = (await examined(f"postgresql://u:secret@127.0.0.1:{free_port()}/x", tmp_path)).values()
    assert finding.level == "fail" and "store_wait" in str(finding.advice) and "secret" not in finding.text


async def test_doctor_has_nothing_to_read_about_a_file(tmp_path: Path) -> None:
    assert await examined("sqlite:///gateway.db", tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "about", "level", "words"),
    [
        ({}, "store", "ok", "version 3 of the schema"),
        ({"known_version": 4}, "store", "ok", "makes it 4 at its start"),
        ({"known_version": 2, "schema_problem": "start a newer gateway"}, "store", "fail", "start a newer gateway"),
        ({"clock_ahead_s": 300.0}, "clock of the store", "warn", "this machine is 300 s behind it"),
        ({"clock_ahead_s": -300.0}, "clock of the store", "warn", "this machine is 300 s ahead of it"),
        ({"connection_limit": 3}, "store connections", "fail", "takes 4, of 3"),
        ({}, "shared limits", "ok", "2 do now"),
    ],
)
def test_doctor_judges_the_state_of_a_server(changes: dict[str, object], about: str, level: str, words: str) -> None:
    state = replace(STATE, **changes)  # type: ignore[arg-type]  # a value of each field
    findings = {one.about: one for one in judge_state(state, place="postgresql://h/x", needed=4, shares=True)}
    assert findings[about].level == level and words in findings[about].text


def test_doctor_says_where_each_gateway_counts_for_itself() -> None:
    *_, finding = judge_state(STATE, place="postgresql://h/x", needed=4, shares=False)
    assert "counts limits for itself" in finding.text
