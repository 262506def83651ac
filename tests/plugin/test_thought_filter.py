"""Thoughts in pieces, with a filter for each of them."""

import pytest

from gateway.aio.cooperative import Work, run_at_once
from gateway.plugin import Json
from gateway.plugin.thought_filter import ThoughtFilters


class Veil:
    """A filter that hides `ann`, in whatever pieces it comes, and ends at an exclamation mark."""

    def __init__(self) -> None:
        self.ended: str | None = None
        self._held = ""

    def feed(self, text: str) -> str:
        text = (self._held + text).replace("ann", "xxx")
        if "!" in text:
            self.ended = "loud"
            return text.partition("!")[0]
        kept = next(size for size in (2, 1, 0) if text.endswith("ann"[:size]))
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def finish(self) -> str:
        return self._held


def shout(value: object) -> Work[object]:
    yield
    return value.upper() if isinstance(value, str) else {"note": "Y"}


def piece(index: int, **fields: str) -> Json:
    return {"type": "reasoning.text", "index": index, **fields}


def screened(*chunks: list[object]) -> tuple[list[object], ThoughtFilters]:
    """What is sent of these chunks and of the end."""
    filters = ThoughtFilters(Veil, keep)
    told = [entry for chunk in chunks for entry in run_at_once(filters.screen(chunk))]
    return [*told, *filters.finish()], filters


def keep(value: object) -> Work[object]:
    yield
    return value


def text_of(told: list[object], index: int = 0, key: str = "text") -> str:
    return "".join(one.get(key, "") for one in told if isinstance(one, dict) and one["index"] == index)


@pytest.mark.parametrize("key", ["text", "summary", "thinking"])
def test_word_over_several_pieces_is_found(key: str) -> None:
    told, _ = screened([piece(0, **{key: "I know a"})], [piece(0, **{key: "n"})], [piece(0, **{key: "n. So"})])
    assert text_of(told, key=key) == "I know xxx. So"


def test_held_text_comes_before_the_next_thought_and_its_signature() -> None:
    told, _ = screened([piece(0, text="a")], [piece(0, signature="s")], [piece(1, text="an")], [piece(2, text="d")])
    assert told[:2] == [piece(0, text=""), piece(0, text="a", signature="s")]
    assert [one["index"] for one in told if isinstance(one, dict)] == [0, 0, 1, 1, 2]
    assert (text_of(told, 1), text_of(told, 2)) == ("an", "d")


def test_changed_thought_loses_its_signature() -> None:
    """Its model would refuse it; an unchanged one keeps it, whole or in pieces."""
    told, _ = screened([piece(0, text="ann", signature="s")], [piece(1, text="bob", signature="t")])
    assert told == [piece(0, text="xxx"), piece(1, text="bob", signature="t")]
    told, _ = screened([piece(0, text="an")], [piece(0, text="n")], [piece(0, signature="s")])
    assert text_of(told) == "xxx" and not any("signature" in dict(one) for one in told)  # type: ignore[call-overload]


def test_other_fields_and_entries_are_changed_by_themselves() -> None:
    filters = ThoughtFilters(Veil, shout)
    told = run_at_once(filters.screen([piece(0, text="b", id="x", note="n"), {"note": "y"}, "z"]))
    assert told == [piece(0, text="b", id="x", note="N"), {"note": "Y"}, "Z"]


def test_filter_that_ends_is_known() -> None:
    told, filters = screened([piece(0, text="so")], [piece(0, text="me! more")])
    assert (text_of(told), filters.ended) == ("some", "loud")
    assert screened([piece(0, text="calm")])[1].ended is None
