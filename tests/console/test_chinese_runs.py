"""The Chinese of the pages of runs has every text of theirs, with the same places for values."""

import re
from pathlib import Path
from typing import get_args

import gateway.console
from gateway.console.chinese_runs import RUNS
from gateway.console.pages.run import DECISIONS
from gateway.console.pages.runs import KINDS, STATES
from gateway.contracts.journal import ApprovalState, RunState, StepState

TEMPLATES = Path(gateway.console.__file__).parent / "templates"
_TEXT = re.compile(r'\bt\("([^"]*)"')
#: Texts that other pages have, too: their translation is beside those.
SHARED = {
    "Approval",
    "Approve",
    "Approve the call of {0}",
    "Edit, give a reason, remember",
    "Reject",
    "Reject the call of {0}",
    "waits until",
}


def test_every_text_of_the_templates_is_translated() -> None:
    texts = {text for template in TEMPLATES.glob("run*.html") for text in _TEXT.findall(template.read_text())}
    assert len(texts) > 60
    assert texts - SHARED - set(RUNS) == set()


def test_states_and_decisions_are_translated() -> None:
    words = {*get_args(RunState), *get_args(StepState), *get_args(ApprovalState), *STATES, *KINDS, *DECISIONS.values()}
    assert words - set(RUNS) == set()


def test_the_list_offers_every_state() -> None:
    assert set(STATES) == set(get_args(RunState))


def test_values_have_the_same_places() -> None:
    for english, chinese in RUNS.items():
        assert sorted(re.findall(r"\{\d\}", english)) == sorted(re.findall(r"\{\d\}", chinese)), english
