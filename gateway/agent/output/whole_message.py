"""A whole answer of a model: the text that may be shown, and its outcome."""

from gateway.agent.output.scanner import AnswerScanner
from gateway.agent.output.tool_calls import Outcome, require_text
from gateway.contracts.storage.store import Json


def read_message(message: Json, *, finish_reason: str | None = None) -> tuple[str, Outcome]:
    """Return the text of an assistant message that may be shown, and the calls in its fields or its text."""
    scanner = AnswerScanner()
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    shown = "".join(scanner.feed(require_text(part.get("text"))) for part in parts if isinstance(part, dict))
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        scanner.feed_native([{**call, "index": i} for i, call in enumerate(calls) if isinstance(call, dict)])
    scanner.feed_function_call(message.get("function_call"))
    rest, outcome = scanner.finish(finish_reason=finish_reason)
    return shown + rest, outcome
