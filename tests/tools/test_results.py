"""Results of tools as the model reads them: clean, short, and the rest within reach of the same tenant only."""

import re
from dataclasses import replace
from typing import Final

import orjson
import pytest

from gateway.contracts.tools import ToolResult
from gateway.tools.results import READ_RESULT, ReadsOnly, Results, clean, get_owner

from .doubles import call, exchange

OURS: Final = get_owner(exchange())


def id_in(shown: str) -> str:
    found = re.search(r"id (res_[0-9a-f]{16})\]", shown)
    assert found is not None
    return found[1]


async def read(results: Results, tenant: str = "t", *, user: str | None = None, **arguments: object) -> ToolResult:
    return await results.call(call(READ_RESULT, **arguments), replace(exchange(tenant=tenant), user=user))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb", "a\nb"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("nul\x00, bell\x07, del\x7f, c1\x9b", "nul, bell, del, c1"),
        ("ad\u202emin\u2066", "admin"),
        ("zero\u200bwidth\u2060\ufeff", "zerowidth"),
        ("tag\U000e0041\U000e007fged", "tagged"),
        ("lone\ud800 and \udfff", "lone and "),
        ("数据 naïve 🙂", "数据 naïve 🙂"),
        ("\u202eé\x00\r\n" * 20_000, "é\n" * 20_000),
    ],
)
def test_control_and_invisible_characters_are_taken_out(text: str, cleaned: str) -> None:
    """What a person cannot see, a model does not read; line ends and tabs stay, every script stays."""
    assert clean(text) == cleaned
    assert orjson.dumps(clean(text))


def test_a_short_result_stays_as_it_is() -> None:
    """Up to and including the limit."""
    results = Results()
    assert results.shorten("x" * 100, owner=OURS, limit_chars=100) == "x" * 100


@pytest.mark.parametrize("limit", [1, 2, 3, 256])
async def test_a_long_result_is_shown_by_its_head_and_tail(limit: int) -> None:
    """With how much is left out, and the id under which the whole can be read."""
    results, text = Results(), "".join(chr(0x4E00 + i) for i in range(1000))
    shown = results.shorten(text, owner=OURS, limit_chars=limit)
    head, note, tail = shown.split("\n")
    assert text.startswith(head) and text.endswith(tail)
    assert len(head) + len(tail) == limit
    assert f"{len(text) - limit} characters omitted" in note
    assert (await read(results, id=id_in(shown), length=5000)).content == text


async def test_a_long_result_is_read_in_parts() -> None:
    """By offset and length; behind the end there is a word about its size."""
    results, text = Results(), "abcdefghij" * 3000
    name = id_in(results.shorten(text, owner=OURS, limit_chars=300))
    assert (await read(results, id=name)).content == text[:16384]
    assert (await read(results, id=name, offset=29_995)).content == text[29_995:]
    assert (await read(results, id=name, offset=3, length=4)).content == "defg"
    beyond = await read(results, id=name, offset=30_000)
    assert beyond.ok and "30000 characters" in beyond.content


async def test_a_result_of_another_tenant_key_or_end_user_does_not_exist() -> None:
    """Whoever learns the id."""
    results = Results()
    name = id_in(results.shorten("secret" * 100, owner=OURS, limit_chars=10))
    stolen = await read(results, "other", id=name)
    unknown = await read(results, id="res_0000000000000000")
    assert stolen == unknown
    assert not stolen.ok and "secret" not in stolen.content
    assert await read(results, user="bob", id=name) == unknown
    other = replace(exchange(), caller=replace(exchange().caller, name="d"))
    assert await results.call(call(READ_RESULT, id=name), other) == unknown


async def test_oldest_results_are_evicted_first() -> None:
    """What is kept has a bound, over all runs; the newest is kept even if it is larger."""
    results = Results(kept_chars=1000)
    first, second, third = (id_in(results.shorten(letter * 400, owner=OURS, limit_chars=10)) for letter in "abc")
    assert not (await read(results, id=first)).ok
    assert (await read(results, id=second)).ok and (await read(results, id=third)).ok
    large = id_in(results.shorten("d" * 5000, owner=OURS, limit_chars=10))
    assert (await read(results, id=large, length=5000)).content == "d" * 5000
    assert not (await read(results, id=third)).ok


async def test_results_of_one_key_evict_no_other_keys_results() -> None:
    """Whatever end users it names: a flood of long results is at the cost of the key that they are of."""
    results, other = Results(kept_chars=1000), replace(exchange(tenant="other"), user=None)
    theirs = id_in(results.shorten("a" * 300, owner=get_owner(other), limit_chars=10))
    users = [f"user {number}" for number in range(20)]
    ours = [id_in(results.shorten("b" * 200, owner=(*OURS[:2], user), limit_chars=10)) for user in users]
    assert (await results.call(call(READ_RESULT, id=theirs), other)).content == "a" * 300
    found = [(await read(results, user=user, id=one)).ok for user, one in zip(users, ours, strict=True)]
    assert found == [False] * 17 + [True] * 3


async def test_closing_a_configuration_keeps_stored_results() -> None:
    """Twice is once."""
    results = Results(kept_chars=1000)
    name = id_in(results.shorten("a" * 900, owner=OURS, limit_chars=10))
    await results.close()
    await results.close()
    assert (await read(results, id=name)).ok
    kept = [id_in(results.shorten("b" * 400, owner=OURS, limit_chars=10)) for _ in range(2)]
    assert all([(await read(results, id=one)).ok for one in kept])


async def test_read_result_tool_is_always_harmless() -> None:
    """It shows what the run was shown; its definition says what it takes."""
    (tool,) = await Results().list_tools()
    assert tool.name == READ_RESULT and tool.idempotent and not tool.untrusted
    assert tool.parameters["required"] == ["id"] and tool.parameters["additionalProperties"] is False
    assert ReadsOnly().assess({"id": "x", "other": []}).decision == "auto"


async def test_untrusted_result_is_remembered_for_its_tenant_only() -> None:
    """For its tenant, as long as it is kept; an id that means nothing is nobody's."""
    results = Results(kept_chars=100)
    theirs = id_in(results.shorten("x" * 100, owner=OURS, limit_chars=10, untrusted=True))
    assert results.is_untrusted(theirs, owner=OURS) and not results.is_untrusted(theirs, owner=("other", *OURS[1:]))
    ours = id_in(results.shorten("y" * 100, owner=OURS, limit_chars=10))
    assert not results.is_untrusted(ours, owner=OURS)
    for gone in (theirs, "res_0000000000000000", None, {}):
        assert not results.is_untrusted(gone, owner=OURS)


async def test_reading_a_result_is_never_refused() -> None:
    """Whether it is there or not: the run was shown it before."""
    assert await Results().refusal(call(READ_RESULT, id="res_0000000000000000"), exchange()) is None
