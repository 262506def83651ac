"""A key with limits, and a request of it."""

from gateways import key

KEY = "sk-limited"
OURS = b"X-Gateway-Key: sk-limited"
BODY = b'{"model": "m", "messages": []}'


def keys(**limits: object) -> list[dict[str, object]]:
    return [{**key(KEY), "name": "ci", "limits": limits}]
