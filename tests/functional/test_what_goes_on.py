"""The table in docs/security.md is true: which header fields of a client reach its upstream, in each lane."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .through import FINE, ask, post, through

PAGE = Path(__file__).parents[2] / "docs/security.md"
ROW = re.compile(r"^\| (?P<fields>[^|]*`[^|]*) \| (?P<passthrough>[^|]+) \| (?P<context>[^|]+) \|$", re.MULTILINE)
PATHS = {"passthrough": b"/v1/chat/completions", "context": b"/context/v1/chat/completions"}
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true}'
#: Pages of it may ask the gateway: others get no answer.
SITE = "https://chat.example"
#: What each word of the table means: whether a field goes on by default, with a key of the upstream's, with its ids.
MEANINGS = {
    "yes": (True, True, True),
    "no": (False, False, False),
    "unless the upstream has an `api_key`": (True, False, True),
    "if the upstream has `client_ids: true`": (False, False, True),
}
UPSTREAMS: tuple[dict[str, object], ...] = ({}, {"api_key": "of-the-gateway"}, {"client_ids": True})


def rows() -> Iterator[tuple[str, str, str]]:
    """Each field that the table names, with its two words."""
    section = PAGE.read_text().partition("## What models and their providers learn")[2].partition("\n## ")[0]
    for row in ROW.finditer(section):
        for name in re.findall(r"`([^`]+)`", row["fields"]):
            yield name, row["passthrough"], row["context"]


def test_documented_header_table_is_parsed() -> None:
    """A table that is written in another way would prove nothing."""
    named = [name for name, *_ in rows()]
    assert len(named) > 40 and {"X-Codex-*", "Cookie", "User-Agent", "From"} <= set(named)


def line_of(name: str) -> bytes:
    """Return a field that the table names, with a value that it may have."""
    if name == "X-Context-*":
        return b"X-Context-Task: none"  # any that the gateway does not know is refused
    if name == "Origin":
        return b"Origin: " + SITE.encode()
    return name.replace("*", "Some").encode() + (b": trailers" if name == "TE" else b": value")


@pytest.mark.parametrize("upstream", range(3), ids=["plain", "with a key", "with ids"])
@pytest.mark.parametrize("lane", PATHS)
async def test_header_forwarding_matches_the_documented_table(lane: str, upstream: int) -> None:
    """Exactly as it came, or not at all."""
    expected: dict[str, bool] = {}
    found: dict[str, bool] = {}
    async with through(FINE, upstream=UPSTREAMS[upstream], cors=[SITE]) as (gateway, fake):
        for name, passthrough, context in rows():
            line = line_of(name)
            expected[name] = MEANINGS[passthrough if lane == "passthrough" else context][upstream]
            await ask(gateway, post(BODY, PATHS[lane], b"Content-Type: application/json", line))
            found[name] = line in fake.requests[-1].raw.split(b"\r\n")
        assert len(fake.requests) == len(found)
    assert found == expected


@pytest.mark.parametrize(
    ("door", "kept"), [("chat/completions", set[str]()), ("responses", {"metadata", "client_metadata"})]
)
async def test_body_field_forwarding_matches_the_documentation(door: str, kept: set[str]) -> None:
    """As their client set them, but for two of a request for a response."""
    named = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "metadata": {"a": "b"}}
    asked = {**named, "client_metadata": {"turn_id": "t"}} if kept else named
    said = {"input" if kept else "messages": [{"role": "user", "content": "Hi"}]}
    async with through(FINE) as (gateway, fake):
        body = json.dumps({"model": "m", **said, **asked}).encode()
        await ask(gateway, post(body, b"/context/v1/" + door.encode(), b"Content-Type: application/json"))
    sent = json.loads(fake.requests[-1].payload)
    assert {name: sent[name] for name in asked if name in sent} == {
        name: value for name, value in asked.items() if name not in kept
    }
