"""The header lines of a request to Messages: the version, and the betas that a client may use.

A beta may let the provider run tools by itself, connect to servers, or answer with another model. The gateway would see
nothing of it. So of a client's betas those pass that change what the model reads, thinks and writes.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gateway.contracts.model_apis import API_LINES
from gateway.upstream.endpoint import ModelAccess

_BETA: Final = b"anthropic-beta"
_DATE: Final = re.compile(r"-20[0-9]{2}-?[0-9]{2}-?[0-9]{2}\Z")
#: The betas of clients that pass, without their dates.
_PASSED: Final = frozenset(
    (
        *("cache-diagnosis", "claude-code", "context-1m", "context-management", "dev-full-thinking"),
        *("extended-cache-ttl", "fast-mode", "files-api", "fine-grained-tool-streaming", "interleaved-thinking"),
        *("model-context-window-exceeded", "oauth", "output-128k", "output-300k", "pdfs", "prompt-caching"),
        *("structured-outputs", "task-budgets", "thinking-binding-controls", "thinking-display-updates"),
        *("thinking-token-count", "token-efficient-tools", "user-profiles"),
    )
)
_KNOWN_LINES: Final = 64


def build_header_lines(lines: bytes, access: ModelAccess) -> bytes:
    """Return a client's header lines with the gateway's version of the API, and the betas of both."""
    return _build_lines(lines, access.betas)


def speaks_messages(lines: bytes) -> bool:
    """Return whether a client has sent its request in this API itself."""
    return b"anthropic-version:" in lines.lower()


@lru_cache(_KNOWN_LINES)
def _build_lines(lines: bytes, betas: Sequence[str]) -> bytes:
    kept: list[bytes] = []
    names = list(betas)
    for line in lines.splitlines(keepends=True):
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name == _BETA:
            names += [one for one in _split_names(value) if _DATE.sub("", one) in _PASSED]
        elif not name.startswith(b"anthropic-"):
            kept.append(line)
    if names:
        kept.append(b"%b: %b\r\n" % (_BETA, ",".join(dict.fromkeys(names)).encode("latin-1")))
    return b"".join((*kept, API_LINES["messages"]))


def _split_names(value: bytes) -> list[str]:
    return [name for one in value.decode("latin-1").split(",") if (name := one.strip())]
