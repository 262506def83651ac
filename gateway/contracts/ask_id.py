"""The ids of conversations that ask before each call: the same conversation always has the same id."""

import hashlib


def ask_id(tenant: str, caller: str, conversation: str) -> str:
    """Return an id that is safe in a URL path, whatever the conversation is called."""
    parts = "\0".join((tenant, caller, conversation))
    return "ask_" + hashlib.sha256(parts.encode()).hexdigest()[:24]
