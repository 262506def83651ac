"""The levels of risk that a model states elsewhere than in `risk_level`: they raise the risk, and never lower it."""

from collections.abc import Mapping
from typing import Final

from gateway.contracts.risk import LEVELS, RAISED, normalize_choice
from gateway.text.confusables import compute_skeleton

_RISK: Final = compute_skeleton("risk")
_RISK_LEVEL: Final = compute_skeleton("risk_level")
_LONGEST_NAME: Final = 40
#: What a model may call a level that is not low.
_RAISING: Final = frozenset(
    map(compute_skeleton, (*RAISED, "moderate", "elevated", "severe", "serious", "critical", "extreme", "very_high"))
)


def resembles(name: str) -> bool:
    """Return whether a model means risk_level by this name: `risk`, `riskLevel`, `RISK LEVEL`, `model_risk_level`.

    Letters of other scripts count as the letters that they look like.
    """
    if len(name) > _LONGEST_NAME:
        return False
    spelled = compute_skeleton(name)
    return spelled.startswith(_RISK) or _RISK_LEVEL in spelled


def raises_level(value: object) -> bool:
    """Return whether a value is a level that is not low, or an object or a list with one."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, str) and len(each) <= _LONGEST_NAME and compute_skeleton(each) in _RAISING:
            return True
    return False


def find_raising_value(value: object, own: frozenset[str]) -> object:
    """Return the first value that raises the risk under a name like risk_level, at any depth of `value`; None: none.

    `own` are the names of arguments that belong to the tool.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            for name, below in each.items():
                if name not in own and resembles(name) and raises_level(below):
                    return below
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return None


def list_declared_names(schema: object) -> frozenset[str]:
    """Return the names of all properties that a JSON Schema declares, at any depth."""
    names: set[str] = set()
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            properties = each.get("properties")
            if isinstance(properties, dict):
                names.update(properties)
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return frozenset(names)


def find_outer_level(*holders: Mapping[str, object]) -> object:
    """Return the level that these objects of a call have beside its arguments; None: none.

    The strictest of several counts.
    """
    levels = [value for holder in holders for name, value in holder.items() if resembles(name)]
    raised = (level for level in levels if normalize_choice(level) in RAISED)
    invalid = (level for level in levels if level not in (None, "", *LEVELS))
    return next(raised, None) or next(invalid, None)
