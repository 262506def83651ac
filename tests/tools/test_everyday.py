"""What agents do every day and what harms nobody: hardly any of it may ask, or people stop to look."""

import json
from typing import Final

from gateway.contracts.storage.store import Json
from tests.verdicts import ASSESSORS, DATA

CALLS: Final[list[Json]] = [json.loads(line) for line in (DATA / "everyday.jsonl").read_text().splitlines()]
#: What developers and agents type besides: 200 commands that change nothing.
COMMANDS: Final[list[str]] = [
    json.loads(line)["arguments"]["command"] for line in (DATA / "everyday_commands.jsonl").read_text().splitlines()
]
#: They ask by design: what they show is another program's doing, or another machine's.
COMMANDS_THAT_ASK: Final = {
    "npm ls --depth=0",
    "curl -s https://api.github.com/repos/python/cpython | jq .stargazers_count",
    "docker ps",
    "docker images",
    "kubectl get pods",
}


def asking(profile: str) -> list[Json]:
    judges = ASSESSORS[profile]
    return [call for call in CALLS if judges[call["tool"]].assess(call["arguments"]).decision != "auto"]


def test_standard_profile_asks_for_at_most_ten_everyday_calls() -> None:
    """Under `standard`, all tools together."""
    assert len(CALLS) == 188
    assert len(asking("standard")) <= 10


def test_standard_profile_asks_only_for_listed_everyday_commands() -> None:
    """One by one."""
    found = {call["arguments"]["command"] for call in asking("standard") if call["tool"] == "execute_command"}
    assert found == COMMANDS_THAT_ASK


def test_hardened_profile_asks_for_at_most_a_fifth_of_commands() -> None:
    """A profile that asks at every turn would be switched off: four of five commands run by themselves."""
    commands = [call for call in CALLS if call["tool"] == "execute_command"]
    found = [call for call in asking("hardened") if call["tool"] == "execute_command"]
    assert len(found) <= len(commands) // 5


def test_at_most_ten_percent_of_everyday_commands_require_confirmation() -> None:
    """Under `standard`; what asks would run a project's own code, or talk to another program."""
    judge = ASSESSORS["standard"]["execute_command"]
    asking = [command for command in COMMANDS if judge.assess({"command": command}).decision != "auto"]
    assert len(set(COMMANDS)) == 200
    assert len(asking) <= 20, asking


def test_hardened_profile_runs_most_everyday_commands() -> None:
    """Three of four: it asks for names that nobody knows, histories and searches for secrets."""
    judge = ASSESSORS["hardened"]["execute_command"]
    asking = [command for command in COMMANDS if judge.assess({"command": command}).decision != "auto"]
    assert len(asking) <= 50, asking
