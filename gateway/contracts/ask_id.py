"""The ids of conversations that ask before each call: the same whenever it is said again."""

import hashlib


def ask_id(tenant: str, caller: str, conversation: str) -> str:
    """Returns an id that can stand in a path, whatever the conversation is called."""
    parts = "\0".join((tenant, caller, conversation))
    return "ask_" + hashlib.sha256(parts.encode()).hexdigest()[:24]
