"""The beta features of Messages (`anthropic-beta`) that a client may turn on at a model's server, by their names.

It is an allow-list, as a feature changes what a request or an answer may contain, and the gateway reads both.
One that is not here does not go on, as it would not for a client that leaves it out. So a program with a newer list
works, and gets no blocks that the gateway cannot read. Features of tools that a provider runs are left out.
"""

from typing import Final

#: docs/messages.md lists them.
KNOWN: Final = frozenset(
    (
        # thoughts and efforts
        "interleaved-thinking-2025-05-14",
        "dev-full-thinking-2025-05-14",
        "effort-2025-11-24",
        "task-budgets-2026-03-13",
        "thinking-token-count-2026-05-13",
        "thinking-display-updates-2026-08-18",
        "thinking-binding-controls-2026-08-01",
        # sizes, formats, speed
        "output-128k-2025-02-19",
        "output-300k-2026-03-24",
        "context-1m-2025-08-07",
        "model-context-window-exceeded-2025-08-26",
        "structured-outputs-2025-11-13",
        "pdfs-2024-09-25",
        "fast-mode-2026-02-01",
        # caches and context
        "prompt-caching-2024-07-31",
        "prompt-caching-scope-2026-01-05",
        "extended-cache-ttl-2025-04-11",
        "cache-diagnosis-2026-04-07",
        "context-management-2025-06-27",
        # tools of the client's, system messages
        "token-efficient-tools-2025-02-19",
        "fine-grained-tool-streaming-2025-05-14",
        "advanced-tool-use-2025-11-20",
        "mid-conversation-system-2026-04-07",
        "mid-conversation-system-clear-at-2026-08-21",
        "mid-conversation-output-config-2026-07-01",
        # accounts and programs
        "claude-code-20250219",
        "oauth-2025-04-20",
        "user-profiles-2026-03-24",
        "user-profiles-2026-08-18",
        "user-profiles-2026-09-04",
    )
)
#: The header that names them.
BETAS: Final = b"anthropic-beta"


def select_betas(value: bytes) -> bytes:
    """Return a value of the header with the known features only; b"" for none."""
    named = (name.strip() for name in value.split(b","))
    return b",".join([name for name in named if name.decode("latin-1") in KNOWN])
