"""Levels that a model states under other names, or in other places, than the one it was told."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.tools.risk_level import find_outer_level, find_raising_value, list_declared_names, raises_level, resembles


@pytest.mark.parametrize(
    ("name", "does"),
    [
        *(
            (name, True)
            for name in ("risk", "Risk", "risklevel", "riskLevel", "RISK-LEVEL", "risk level", "risk.level")
        ),
        *(
            (name, True)
            for name in ("risk_rating", "model_risk_level", "r\u0131sk_level", "r\u0456sk", "R\u0406SK_LEVEL")
        ),
        *(
            (name, True)
            for name in ("\uff52\uff49\uff53\uff4b\uff3f\uff4c\uff45\uff56\uff45\uff4c", "ri\u200bsk", "r1sk_1evel")
        ),
        *((name, False) for name in ("", "asterisk", "level", "sql", "brisk", "risk_" + "x" * 40)),
    ],
)
def test_risk_level_name_is_recognised_in_every_spelling(name: str, does: bool) -> None:
    """Case, joints, letters that look alike, invisible characters; not within another word."""
    assert resembles(name) is does


@pytest.mark.parametrize(
    ("value", "does"),
    [
        *((value, True) for value in ("high", " HIGH ", "medium", "Critical", "very high", "h\u0456gh", "\uff48igh")),
        *((value, True) for value in (["low", "high"], {"value": "high"}, {"levels": [{"is": "severe"}]})),
        *((value, False) for value in ("low", "", "none", None, 3, True, [], {}, "high water", "x" * 50)),
    ],
)
def test_raised_risk_level_is_recognised_in_every_spelling(value: object, does: bool) -> None:
    """Words that are no levels do not."""
    assert raises_level(value) is does


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"sql": "x", "options": {"risk_level": "high"}}, "high"),
        ({"steps": [1, [{"meta": {"riskLevel": "medium"}}]]}, "medium"),
        ({"parameters": {"parameters": {"risk": "high"}}}, "high"),
        ({"sql": "x", "options": {"risk_level": "low"}, "note": "high"}, None),
        ({"options": {"appetite": {"risk": "high"}}, "risk_limit": "high"}, "high"),
    ],
)
def test_raised_risk_level_is_found_at_any_depth(arguments: Json, found: object) -> None:
    """In objects and lists."""
    assert find_raising_value(arguments, frozenset()) == found


def test_parameters_declared_in_the_schema_are_not_risk_levels() -> None:
    """Wherever it declares it."""
    item = {"type": "object", "properties": {"risk": {"type": "string"}}}
    own = list_declared_names({"properties": {"rows": {"type": "array", "items": item}, "x": True}, "anyOf": [True]})
    assert own == {"rows", "x", "risk"}
    assert find_raising_value({"rows": [{"risk": "high"}]}, own) is None
    assert find_raising_value({"rows": [{"Risk": "high"}]}, own) == "high"


def test_deep_arguments_are_read_to_their_end() -> None:
    """Without recursion: whatever a parser let through."""
    deep: Json = {"risk_level": "high"}
    for _ in range(50_000):
        deep = {"a": deep}
    assert find_raising_value(deep, frozenset()) == "high"


@pytest.mark.parametrize(
    ("holders", "level"),
    [
        ([{}], None),
        ([{"risk_level": "low"}], None),
        ([{"risk_level": ""}, {"riskLevel": None}], None),
        ([{"risk_level": "low"}, {"risk-level": " HIGH"}], " HIGH"),
        ([{"risk_level": 0}, {"risk_level": "medium"}], "medium"),
        ([{"risk_level": "low"}, {"risk_level": 0}], 0),
        ([{"risk": "high", "level": "low"}], "high"),
        ([{"level": "high", "danger": "high"}], None),
        ([{"risk_level": "low"}, {"r\u0131sk_level": "critical"}], "critical"),
    ],
)
def test_strictest_level_beside_the_arguments_is_returned(holders: list[dict[str, object]], level: object) -> None:
    """Raised ones first, then those that are none; one that would lower is no word at all."""
    assert find_outer_level(*holders) == level
