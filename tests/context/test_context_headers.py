"""The values that X-Context-* headers may have."""

import pytest

from gateway.context.context_headers import HEADERS, ID_LIMIT_CHARS, parse_context_headers, parse_tool_names
from gateway.contracts.errors import GatewayError

from .contexts import head

KNOWN = ("read", "write", "time.now", "away.*")


def refused(*lines: bytes) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        parse_context_headers(head(*lines))
    assert caught.value.code == "invalid_header"
    return caught.value


def test_context_headers_are_parsed_by_their_suffix() -> None:
    """Each by its value, without white space; other headers are none of ours."""
    lines = (b"X-Context-Chain: other", b"x-context-CONVERSATION:  c 1 ", b"X-Contextual: x", b"Context-Chain: y")
    assert parse_context_headers(head(*lines)) == {"chain": "other", "conversation": "c 1"}


@pytest.mark.parametrize(
    ("name", "meant"), [(b"X-Context-Chian", "'chain'"), (b"X-Context-Tool", "'tools'"), (b"X-Context-", "")]
)
def test_unknown_context_header_is_refused_with_suggestions(name: bytes, meant: str) -> None:
    """A misspelt one would silently do nothing; the text has the nearest, and all that there are."""
    error = refused(name + b": x")
    assert error.param == name.decode().lower() and meant in error.message
    assert all(f"X-Context-{word.capitalize()}" in error.message for word in HEADERS)


@pytest.mark.parametrize("name", [b"Conversation", b"Task"])
def test_empty_conversation_or_task_header_is_ignored(name: bytes) -> None:
    """Open WebUI sends an empty id of a chat that it does not keep."""
    assert parse_context_headers(head(b"X-Context-" + name + b": ", b"X-Context-Chain: main")) == {"chain": "main"}


@pytest.mark.parametrize("value", [b"", b"  ", b"x" * (ID_LIMIT_CHARS + 1), b"a\tb", b"\x80\x9f"])
def test_invalid_context_header_value_is_refused(value: bytes) -> None:
    """Empty, too long, not printable; it is not repeated."""
    error = refused(b"X-Context-User: " + value)
    assert error.param == "x-context-user" and error.message.startswith("X-Context-User must")
    assert len(error.message) < 120


def test_duplicate_context_header_is_refused() -> None:
    """One name, one value, on every path."""
    for again in (b"x-context-chain: main", b"X-Context-Chain: other"):
        assert refused(b"X-Context-Chain: main", again).param == "x-context-chain"


@pytest.mark.parametrize(
    ("name", "words", "wrong"),
    [
        (b"Approvals", ("hold", "turn", "reject"), (b"Hold", b"auto", b"approve")),
        (b"Events", ("0", "1"), (b"true", b"on", b"2", b"01")),
        (b"Mode", ("context",), (b"passthrough",)),
    ],
)
def test_enumerated_context_header_accepts_only_its_exact_values(
    name: bytes, words: tuple[str, ...], wrong: tuple[bytes, ...]
) -> None:
    """Exactly; the header, what came and what may come stand in the text."""
    for word in words:
        assert parse_context_headers(head(b"X-Context-%b: %b" % (name, word.encode())))[name.decode().lower()] == word
    for value in wrong:
        error = refused(b"X-Context-%b: %b" % (name, value))
        assert error.param == f"x-context-{name.decode().lower()}" and f"X-Context-{name.decode()}" in error.message
        assert name == b"Mode" or all(repr(word) in error.message for word in (*words, value.decode()))


@pytest.mark.parametrize("text", ["read", "read , write", "time.now", "time.*", "*", "away.whatever", "r?ad"])
def test_tool_names_and_globs_are_accepted(text: str) -> None:
    """Also those of a service that does not run: nobody knows its tools now."""
    assert parse_tool_names(text, KNOWN) == tuple(part.strip() for part in text.split(","))


@pytest.mark.parametrize("text", ["raed", "read,", "Read", "time.then", "other.*", "read write"])
def test_a_name_that_fits_no_tool_is_refused(text: str) -> None:
    """With the header, the name that came, and the names that there are."""
    with pytest.raises(GatewayError, match=r"\(X-Context-Tools\).* There are: away") as caught:
        parse_tool_names(text, KNOWN)
    assert (caught.value.code, caught.value.param) == ("invalid_header", "x-context-tools")
    assert repr(text.rpartition(",")[2]) in caught.value.message
    with pytest.raises(GatewayError, match="did you mean 'read'"):
        parse_tool_names("raed", KNOWN)


def test_unknown_tool_error_lists_a_bounded_number_of_names() -> None:
    """The nearest one is, wherever it stands."""
    with pytest.raises(GatewayError, match=r"did you mean 'tool_999'.* and 950 more") as caught:
        parse_tool_names("tool-999", [f"tool_{n:03}" for n in range(1000)])
    assert len(caught.value.message) < 1000
