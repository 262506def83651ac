"""The parts that operations have in common: codes that there are, headers by their names, answers in JSON."""

from gateway.api.openapi.operation import (
    JSON,
    OF_BODIES,
    OF_CHATS,
    OF_DECISIONS,
    OF_QUERIES,
    STEERING,
    build_json_answers,
)
from gateway.api.openapi.shapes import TEXT
from gateway.contracts.errors import CODES


def test_openapi_code_groups_hold_only_unique_known_codes() -> None:
    """Each once in its group."""
    for codes in (OF_QUERIES, OF_BODIES, OF_DECISIONS, OF_CHATS):
        assert {*codes} <= {*CODES} and len({*codes}) == len(codes)


def test_steering_parameters_are_unique_headers() -> None:
    """All of them are headers, and each is there once."""
    assert {one.place for one in STEERING} == {"header"}
    names = [one.name for one in STEERING]
    assert len({*names}) == len(names) and all(name.startswith(("X-Context-", "Idempotency-")) for name in names)


def test_json_answers_describe_a_json_body_with_its_status() -> None:
    """With its status."""
    (status, answer), *further = build_json_answers("Made.", TEXT, status=201).items()
    assert (status, answer.description, answer.content, further) == (201, "Made.", {JSON: TEXT}, [])
