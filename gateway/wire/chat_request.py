"""What several parts ask of a chat completion request: its client's tools, the format it wants, its last message."""

from collections.abc import Mapping


def client_tools(body: Mapping[str, object]) -> frozenset[str]:
    """The names of the tools that the client brought; whatever is no tool with a name counts as none."""
    brought = body.get("tools")
    functions = (
        [tool.get("function") for tool in brought if isinstance(tool, dict)] if isinstance(brought, list) else []
    )
    return frozenset(name for f in functions if isinstance(f, dict) and isinstance(name := f.get("name"), str))


def wants_text(body: Mapping[str, object]) -> bool:
    """Whether the answer is to be text; an answer in another format is the client's, and runs without our tools."""
    wanted = body.get("response_format")
    return wanted is None or (isinstance(wanted, dict) and wanted.get("type") == "text")


def last_user_text(body: Mapping[str, object]) -> str:
    """The text of the last user message, if that is the last message; "" otherwise."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        return ""
    content = last.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def whole_text(body: Mapping[str, object]) -> str:
    """The last user message, if that is the last message and nothing but text; "" otherwise."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    parts = content if isinstance(content, list) else ()
    if any(not isinstance(part, dict) or part.get("type") != "text" for part in parts):
        return ""
    return last_user_text(body)
