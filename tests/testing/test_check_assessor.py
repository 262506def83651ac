"""The check of assessors finds each broken rule."""

import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.testing import ContractError, check_assessor

from .rule_keepers import Short, plugin_of

HARMLESS: Json = {"text": "abc"}
ASKED: Json = {"text": "abcdefg"}


class Raises(Short):
    def assess(self, arguments: Json) -> Verdict:
        arguments.get("text", "").encode()
        return super().assess(arguments)


class Asynchronous(Short):
    async def assess(self, arguments: Json) -> Verdict:  # type: ignore[override]
        return super().assess(arguments)


class ReturnsText(Short):
    def assess(self, arguments: Json) -> Any:
        return "auto"


class Reads(Short):
    def assess(self, arguments: Json) -> Verdict:
        Path(__file__).read_bytes()
        return super().assess(arguments)


class Counts(Short):
    numbers = count()

    def assess(self, arguments: Json) -> Verdict:
        return Verdict("confirm", "default", f"rule_{next(self.numbers)}") if arguments else super().assess(arguments)


class Mutates(Short):
    def assess(self, arguments: Json) -> Verdict:
        verdict = super().assess(arguments)
        arguments.pop("text", None)
        return verdict


class OtherWord(Short):
    def assess(self, arguments: Json) -> Any:
        return Verdict("allow", "whitelist", "short")  # type: ignore[arg-type]


class OtherBasis(Short):
    def assess(self, arguments: Json) -> Verdict:
        return Verdict("auto", "default", "short")


class NoRule(Short):
    def assess(self, arguments: Json) -> Verdict:
        verdict = super().assess(arguments)
        return Verdict(verdict.decision, verdict.basis, "")


class Strict(Short):
    def assess(self, arguments: Json) -> Verdict:
        return Verdict("confirm", "default", "all")


class Lax(Short):
    def assess(self, arguments: Json) -> Verdict:
        return Verdict("auto", "whitelist", "all")


class Typeless(Short):
    def assess(self, arguments: Json) -> Verdict:
        lets = "text" in arguments and len(str(arguments["text"])) != len(str(ASKED["text"]))
        return Verdict("auto", "whitelist", "all") if lets else Verdict("confirm", "default", "seven")


@pytest.mark.parametrize(
    ("assessor", "rule"),
    [
        (Raises, "never raises"),
        (Asynchronous, "is synchronous"),
        (ReturnsText, "returns a Verdict"),
        (Reads, "has no effects"),
        (Counts, "is deterministic"),
        (Mutates, "does not change its arguments"),
        (OtherWord, "uses the words of verdicts"),
        (OtherBasis, "uses the words of verdicts"),
        (NoRule, "names its rule"),
        (Strict, "lets what is harmless run"),
        (Lax, "asks about everything else"),
        (Typeless, "asks about odd arguments"),
    ],
)
def test_broken_assessor_rule_is_reported_with_place_and_fix(assessor: type[Short], rule: str) -> None:
    """With the place, and what to do."""
    told = rf"(?s)at {re.escape(__file__)}:\d+, {assessor.__name__} breaks the rule '{rule}': .+ To fix it: "
    with pytest.raises(ContractError, match=told):
        check_assessor(plugin_of(assessor), harmless=[dict(HARMLESS)], asked=[dict(ASKED)])


def test_an_assessor_that_keeps_the_rules_passes() -> None:
    """And is there for further tests; the arguments of the test are as they were."""
    harmless, asked = dict(HARMLESS), dict(ASKED)
    assert isinstance(check_assessor(plugin_of(Short), harmless=[harmless], asked=[asked]), Short)
    assert (harmless, asked) == (HARMLESS, ASKED)
