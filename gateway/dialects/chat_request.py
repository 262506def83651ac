"""Facts of a chat completion request that several parts use: its client's tools, wanted format and last message."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.contracts.exchange import Exchange
from gateway.dialects.message_identity import extract_call_ids, get_content_text

_NO_TOOLS: Final[frozenset[str]] = frozenset()
#: Roles of results, and ends of the types of parts that are results.
_RESULTS: Final = ("tool", "function")
_RESULT_PARTS: Final = ("tool_result", "_output")
#: Fields by which clients let a model's server search by itself, or read documents: OpenAI, OpenRouter, xAI, DashScope,
#: Azure, Cohere. And how OpenRouter names a model that searches.
_SEARCHES: Final = frozenset(
    ("web_search_options", "plugins", "search_parameters", "enable_search", "data_sources", "connectors")
)
_ONLINE: Final = ":online"
#: What forces no call, as a text or as the type of an object.
_FREE: Final = ("auto", "none")
_OF_CLIENTS: Final = ("function", "custom")
#: Fields of answers with what a model's server has found and read by itself.
_SOURCES: Final = frozenset(
    ("annotations", "citations", "search_results", "executed_tools", "web_search", "grounding_metadata")
)
#: The type of entries of `reasoning_details` with a call or a result of a tool that a model's server has run by itself.
_PROVIDER_TOOL: Final = "reasoning.provider_tool"
#: So much of a user's message is looked at, as `gateway.text.phrases` does: matching runs on the event loop.
USER_TEXT_CHARS: Final = 20_000
#: How texts begin that Claude Code adds to a user's message for its model: they are no words of the user's.
PROGRAM_TEXTS: Final = (
    "<system-reminder>",
    "<local-command-",  # what its own commands printed, such as `/compact`, and a caveat in front of them
    "<command-name>",
    "<command-message>",
    "<bash-",  # a command of a shell that its user ran, and what it printed
    "This session is being continued from a previous conversation",  # its summary
)
#: How Open WebUI shows a call with its result in the text of an answer.
_SHOWN_CALL: Final = '<details type="tool_calls"'


def list_client_tools(body: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the tools that the client brought; an entry that is not a tool with a name is left out."""
    if "tools" not in body and "functions" not in body:
        return _NO_TOOLS
    functions = [tool.get("function") for tool in _filter_objects(body.get("tools"))] + [
        *_filter_objects(body.get("functions"))
    ]
    return frozenset(name for f in functions if isinstance(f, dict) and isinstance(name := f.get("name"), str))


def brings_tool_results(messages: Sequence[Mapping[str, object]]) -> bool:
    """Return whether a conversation contains results of the client's own tools, or calls, whose results it may repeat.

    Some clients write calls as text, and results as messages of the user. An answer with its sources repeats these.
    """
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role in _RESULTS or (isinstance(content, list) and _has_result(content)):
            return True
        if role == "assistant":
            text = content if isinstance(content, str) else get_content_text(content)
            if (
                message.get("tool_calls")
                or message.get("function_call")
                or _SHOWN_CALL in text
                or extract_call_ids(text)
            ):
                return True
            if _has_sources(message) or list_provider_blocks(message):
                return True
    return False


def list_provider_blocks(message: Mapping[str, object]) -> list[object]:
    """Return the calls and results in an answer of tools that its model's server has run by itself."""
    entries = _filter_objects(message.get("reasoning_details"))
    return [entry.get("block") for entry in entries if entry.get("type") == _PROVIDER_TOOL]


def lets_server_search(body: Mapping[str, object]) -> bool:
    """Return whether a request lets its model's server read what others wrote, by a search or with its own tools."""
    model = body.get("model")
    if isinstance(model, str) and model.endswith(_ONLINE):
        return True
    wishes = _SEARCHES.intersection(body)
    if wishes and any(body[name] not in (None, False, []) for name in wishes):
        return True
    return "tools" in body and not all(tool.get("type") in _OF_CLIENTS for tool in _filter_objects(body["tools"]))


def names_sources(chunk: Mapping[str, object]) -> bool:
    """Return whether a chunk shows that the model's server has searched or read by itself."""
    choices = chunk.get("choices")
    told = [chunk]
    if isinstance(choices, list):
        told += [d for choice in choices if isinstance(choice, dict) and isinstance(d := choice.get("delta"), dict)]
    return any(map(_has_sources, told))


def _has_sources(fields: Mapping[str, object]) -> bool:
    # Nearly all fields have other names.
    return not _SOURCES.isdisjoint(fields) and any(fields.get(name) for name in _SOURCES)


def _has_result(parts: object) -> bool:
    kinds = [part.get("type") for part in _filter_objects(parts)]
    return any(isinstance(kind, str) and kind.endswith(_RESULT_PARTS) for kind in kinds)


def knows_functions_only(body: Mapping[str, object]) -> bool:
    """Return whether the client uses the API before `tools`: it brought `functions`, and gets a `function_call`."""
    return bool(_filter_objects(body.get("functions"))) and not _filter_objects(body.get("tools"))


def build_unforced_fields(body: Mapping[str, object]) -> dict[str, object]:
    """Return what replaces the fields that force a call: they hold for one answer of the model, and it has called."""
    changed: dict[str, object] = {}
    choice = body.get("tool_choice")
    if _is_forcing_choice(choice):
        allowed = choice.get("allowed_tools") if isinstance(choice, dict) else None
        changed["tool_choice"] = (
            {**choice, "allowed_tools": {**allowed, "mode": "auto"}}
            if isinstance(choice, dict) and isinstance(allowed, dict)
            else "auto"
        )
    if isinstance(body.get("function_call"), dict):
        changed["function_call"] = "auto"
    return changed


def forces_call(body: Mapping[str, object]) -> bool:
    """Return whether a request requires its answer to be a call of a tool."""
    return _is_forcing_choice(body.get("tool_choice")) or isinstance(body.get("function_call"), dict)


def _is_forcing_choice(choice: object) -> bool:
    """Return whether a `tool_choice` is one that forces a call: `required`, which some call `any`, or a tool."""
    if not isinstance(choice, dict):
        return choice not in (None, *_FREE)
    allowed = choice.get("allowed_tools")
    return allowed.get("mode") == "required" if isinstance(allowed, dict) else choice.get("type") not in _FREE


def wants_text(body: Mapping[str, object]) -> bool:
    """Return whether the answer is to be text, and has no other format."""
    wanted = body.get("response_format")
    return wanted is None or (isinstance(wanted, dict) and wanted.get("type") == "text")


def may_call_tools(exchange: Exchange) -> bool:
    """Return whether the model of a request may call tools of the gateway.

    If the answer has a format, it may call only the tools that the request itself names: they cost one more call of the
    model.
    """
    if exchange.steering.no_tools:
        return False
    return wants_text(exchange.body) or exchange.delivery.shows_calls or bool(exchange.steering.only_tools)


def get_whole_text(body: Mapping[str, object]) -> str:
    """Return the last message, if it is a user's and nothing but text; "" otherwise."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        return ""
    content = last.get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    whole = [text for text in texts if isinstance(text, str)]
    return "\n".join(whole) if len(whole) == len(content) else ""


def _filter_objects(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def find_last_user_text(messages: object) -> str:
    """Return the text parts of the last user message, at most USER_TEXT_CHARS; "" for anything else."""
    if not isinstance(messages, list):
        return ""
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            return content[:USER_TEXT_CHARS] if isinstance(content, str) else _join_part_texts(content)
    return ""


def _join_part_texts(parts: object) -> str:
    """Return the text parts of a content that are a user's, joined by lines, USER_TEXT_CHARS at most."""
    texts: list[str] = []
    room = USER_TEXT_CHARS
    for part in parts if isinstance(parts, list) else ():
        if room <= 0:
            break
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if isinstance(text, str) and text and not text.startswith(PROGRAM_TEXTS):
            texts.append(text[:room])
            room -= len(text) + 1
    return "\n".join(texts)
