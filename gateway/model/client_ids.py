"""The header fields of a client that identify and locate it: models do not get them, unless their upstream may."""

from functools import lru_cache

#: Of proxies and login services in front of the gateway, and of programs that name ids in their own way.
_NAMES = frozenset(
    (
        b"cf-connecting-ip",
        b"forwarded",
        b"from",
        b"referer",
        b"remote-user",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-real-ip",
        b"x-session-affinity",
    )
)
_BEGINNINGS = (
    b"cf-access-",
    b"tailscale-user-",
    b"x-amzn-oidc-",
    b"x-auth-request-",
    b"x-codex-",
    b"x-forwarded-",
    b"x-openwebui-",
    b"x-opencode-",
)
_ENDINGS = (b"-id", b"-email")
#: It names one request and not its sender, and servers log it so that both sides find that request.
_KEPT = b"x-request-id"
#: Most clients send the same lines with each request.
_KNOWN_LINES = 64


@lru_cache(_KNOWN_LINES)
def remove_client_ids(lines: bytes) -> bytes:
    """Return header lines without the lines that identify a person, a program, a machine or a session."""
    return b"".join(line for line in lines.splitlines(keepends=True) if not _is_client_id(line.partition(b":")[0]))


def _is_client_id(name: bytes) -> bool:
    name = name.lower().replace(b"_", b"-")  # a server that is like CGI reads `_` as `-`
    return name in _NAMES or name.startswith(_BEGINNINGS) or (name.endswith(_ENDINGS) and name != _KEPT)
