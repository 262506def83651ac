"""The header lines of a request: the version, and betas by an allow-list."""

import pytest

from gateway.model.apis.messages.header_lines import build_header_lines, speaks_messages
from gateway.upstream.endpoint import ModelAccess

VERSION = b"Anthropic-Version: 2023-06-01\r\n"


@pytest.mark.parametrize(
    ("lines", "betas", "sent"),
    [
        (b"", (), VERSION),
        (b"X-One: 1\r\nAnthropic-Version: 2020-01-01\r\n", (), b"X-One: 1\r\n" + VERSION),
        (b"anthropic-dangerous-direct-browser-access: true\r\n", (), VERSION),
        (
            b"Anthropic-Beta: context-1m-2025-08-07, mcp-client-2025-11-20\r\n"
            b"anthropic-beta: interleaved-thinking-2025-05-14\r\n",
            (),
            b"anthropic-beta: context-1m-2025-08-07,interleaved-thinking-2025-05-14\r\n" + VERSION,
        ),
        (b"anthropic-beta: code-execution-2025-05-22,server-side-fallback-2026-06-01\r\n", (), VERSION),
        (
            b"anthropic-beta: context-1m-2025-08-07\r\n",
            ("skills-2025-10-02", "context-1m-2025-08-07"),
            b"anthropic-beta: skills-2025-10-02,context-1m-2025-08-07\r\n" + VERSION,
        ),
    ],
)
def test_lines_have_one_version_and_the_betas_that_may_pass(lines: bytes, betas: tuple[str, ...], sent: bytes) -> None:
    assert build_header_lines(lines, ModelAccess(api="messages", betas=betas)) == sent


def test_client_of_messages_is_known_by_its_version() -> None:
    assert speaks_messages(b"X: 1\r\nanthropic-version: 2023-06-01\r\n")
    assert not speaks_messages(b"X: 1\r\n")
