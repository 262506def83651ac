"""Beta features that go on to a model."""

import pytest

from gateway.context.headers import select_forwarded_headers
from gateway.context.message_betas import KNOWN, select_betas

from .contexts import NOBODY, head


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (b"context-1m-2025-08-07", b"context-1m-2025-08-07"),
        (b" context-1m-2025-08-07 ,compact-2026-09-04, effort-2025-11-24", b"context-1m-2025-08-07,effort-2025-11-24"),
        (b"compact-2026-09-04", b""),
        (b",\xff,", b""),
    ],
)
def test_unknown_feature_is_left_out(value: bytes, known: bytes) -> None:
    """The others stay in their order."""
    assert select_betas(value) == known


def test_other_clients_keep_their_header() -> None:
    """Only requests of Messages have the list."""
    lines, _ = select_forwarded_headers(head(b"anthropic-beta: unheard-of"), NOBODY.consumed)
    assert lines == b"anthropic-beta: unheard-of\r\n"


def test_features_of_server_tools_are_not_known() -> None:
    """The gateway could not read what they bring."""
    words = ("code-execution", "computer-use", "files-api", "skills", "mcp-", "compact", "threads", "fallback")
    assert not [name for name in KNOWN if any(word in name for word in words)]
