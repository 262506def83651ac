"""What Anthropic's Messages refuse, as its public documentation says it: `find_fault` returns the words, or None.

Stricter than the real API where that joins what it may get: turns must alternate, and the turns of an answer with
thoughts must come back block by block. `Ledger` is what the server has answered and signed.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

_SECRET: Final = b"the server's own"
_TOP: Final = frozenset(
    (
        *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "stop_sequences", "metadata"),
        *("thinking", "temperature", "top_p", "top_k", "service_tier", "container", "context_management"),
        *("output_config", "cache_control", "inference_geo", "speed", "diagnostics", "user_profile_id"),
    )
)
_BLOCKS: Final = {
    "text": {"text", "citations"},
    "image": {"source", "transformations"},
    "document": {"source", "title", "context", "citations"},
    "search_result": {"source", "title", "content", "citations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller", "toolset_name"},
    "tool_result": {"tool_use_id", "content", "is_error", "toolset_name"},
    "server_tool_use": {"id", "name", "input"},
    "web_search_tool_result": {"tool_use_id", "content"},
}
_OF_ASSISTANT: Final = ("thinking", "redacted_thinking", "tool_use", "server_tool_use", "web_search_tool_result")
_OF_USER: Final = ("tool_result", "image", "document", "search_result")
_OF_SYSTEM: Final = {"clear_at", "output_config"}
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_TOOL: Final = frozenset(
    (
        *("name", "description", "input_schema", "cache_control", "strict", "type", "defer_loading"),
        *("eager_input_streaming", "input_examples", "allowed_callers"),
    )
)
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")


def sign(thought: str) -> str:
    """Return the signature of a thought."""
    return base64.b64encode(hmac.digest(_SECRET, thought.encode(), hashlib.sha256)).decode()


@dataclass
class Ledger:
    """The answers of a server: the kinds and proofs of the blocks of each, by the ids of its calls."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    knows_system: bool = True  # turns of the system, as newer models do
    data: set[str] = field(default_factory=set)

    def keep(self, blocks: list[Json]) -> None:
        """Keep an answer that has calls, and its redacted thoughts."""
        self.data |= {block["data"] for block in blocks if block["type"] == "redacted_thinking"}
        for block in blocks:
            if block["type"] == "tool_use":
                self.answers[block["id"]] = outline(blocks)


def outline(blocks: list[Json]) -> list[str]:
    """Return the order of thoughts and calls of an answer: a proof for each thought, the id of each call."""
    proofs = [block.get("signature") or block.get("data") or block.get("id") for block in blocks]
    return [proof for proof in proofs if proof is not None]


def find_fault(body: Json, ledger: Ledger) -> str | None:
    """Return the words of a refusal; None: the request is taken."""
    return next(_faults(body, ledger), None)


def _faults(body: Json, ledger: Ledger) -> Iterator[str]:
    yield from (f"{name}: Extra inputs are not permitted" for name in body if name not in _TOP)
    for name in ("model", "messages", "max_tokens"):
        if body.get(name) is None:
            yield f"{name}: Field required"
    if type(body["max_tokens"]) is not int or body["max_tokens"] < 1:
        yield "max_tokens: Input should be a valid integer greater than or equal to 1"
    yield from _settings(body)
    yield from _tools(body)
    yield from _thinking(body)
    yield from _turns(body, ledger)
    yield from _marks(body)


def _settings(body: Json) -> Iterator[str]:
    temperature = body.get("temperature")
    if temperature is not None and not 0 <= temperature <= 1:
        yield "temperature: range: 0..1"
    if temperature is not None and body.get("top_p") is not None:
        yield "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    if any(not text.strip() for text in body.get("stop_sequences") or ()):
        yield "stop_sequences: each stop sequence must contain non-whitespace"
    user = (body.get("metadata") or {}).get("user_id")
    if user is not None and (len(user) > 256 or "@" in user):
        yield "metadata.user_id: user_id appears to contain an email address, or is too long"
    if body.get("service_tier") not in (None, "auto", "standard_only"):
        yield "service_tier: Input should be 'auto' or 'standard_only'"
    if any(name not in ("effort", "format", "task_budget") for name in body.get("output_config") or ()):
        yield "output_config: Extra inputs are not permitted"


def _tools(body: Json) -> Iterator[str]:
    tools = body.get("tools") or []
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."
    for at, tool in enumerate(tools):
        if not _NAME.fullmatch(tool["name"]):
            yield f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if "input_schema" not in tool and "type" not in tool:
            yield f"tools.{at}.custom.input_schema: Field required"
        if "input_schema" in tool and tool["input_schema"].get("type") != "object":
            yield f"tools.{at}.custom.input_schema.type: Input should be 'object'"
        if "input_schema" in tool:
            yield from (
                f"tools.{at}.custom.{name}: Extra inputs are not permitted" for name in tool if name not in _TOOL
            )
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield "tool_choice: may only be specified while providing `tools`."
    if choice is not None and choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"Tool '{choice.get('name')}' not found in provided tools"
    called = [block for turn in body["messages"] for block in _blocks(turn) if block["type"] == "tool_use"]
    if called and not tools:
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools."


def _thinking(body: Json) -> Iterator[str]:
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] not in ("enabled", "adaptive", "disabled", "between_tools"):
        yield "thinking: Input tag does not match any of the expected tags"
    if thinking["type"] == "enabled":
        budget = thinking.get("budget_tokens")
        if budget is None or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif budget >= body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
    if thinking["type"] in ("disabled", "between_tools"):
        return
    if body.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled."
    if body.get("top_k") is not None or body.get("top_p", 1) < 0.95:
        yield "`top_k` must be unset, and `top_p` at least 0.95, when thinking is enabled."
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use."
    last = body["messages"][-1]
    if last["role"] == "assistant":
        yield "This model does not support assistant message prefill with thinking."
    if thinking["type"] == "enabled" and _blocks(last)[0]["type"] == "tool_result":
        kind = _blocks(body["messages"][-2])[0]["type"]
        if kind not in _THOUGHTS:
            yield f"messages: Expected `thinking` or `redacted_thinking`, but found `{kind}`."


def _turns(body: Json, ledger: Ledger) -> Iterator[str]:
    turns = body["messages"]
    if not turns:
        yield "messages: at least one message is required"
    if turns[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    ids: set[str] = set()
    waiting: list[str] = []
    before = ""
    for at, turn in enumerate(turns):
        role, blocks = turn["role"], _blocks(turn)
        if role == "system" and not ledger.knows_system:
            yield "role 'system' is not supported on this model"
        beside = turn.keys() - {"role", "content"}
        if role not in ("user", "assistant", "system") or beside - (_OF_SYSTEM if role == "system" else set()):
            yield f"messages.{at}: the role must be user or assistant, and nothing else stands beside content"
        behind = [one["role"] for one in turns[at + 1 : at + 2]]
        if role == "system" and (before != "user" or behind not in ([], ["assistant"])):
            yield f"messages.{at}: a system message must follow a user message, and end or precede an answer"
        if role == before:
            yield f"messages.{at}: roles must alternate"
        before = role
        if not blocks and not (role == "system" and beside):
            yield f"messages.{at}: all messages must have non-empty content"
        for number, block in enumerate(blocks):
            yield from _block(f"messages.{at}.content.{number}", role, block)
        if role == "system":
            if any(block["type"] != "text" for block in blocks):
                yield f"messages.{at}: a system message has text alone"
            continue
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            yield f"messages.{at}: `tool_use` ids were found without `tool_result` blocks after, or the reverse"
        if any(block["type"] == "tool_result" for block in blocks[len(results) :]):
            yield f"messages.{at}: `tool_result` blocks must come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if ids & set(waiting) or len(set(waiting)) < len(waiting):
            yield f"messages.{at}: `tool_use` ids must be unique"
        ids |= set(waiting)
        yield from _thoughts(f"messages.{at}", blocks, ledger)
    if waiting:
        yield "messages: `tool_use` ids were found without `tool_result` blocks immediately after"
    last = _blocks(turns[-1])[-1] if before == "assistant" else {}
    if last and last["type"] == "text" and last["text"] != last["text"].rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"


def _block(place: str, role: str, block: Json) -> Iterator[str]:
    kind = block["type"]
    if kind not in _BLOCKS:
        yield f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        return
    if extra := block.keys() - _BLOCKS[kind] - {"type", "cache_control"}:
        yield f"{place}.{kind}.{min(extra)}: Extra inputs are not permitted"
    if (role == "user" and kind in _OF_ASSISTANT) or (role == "assistant" and kind in _OF_USER):
        yield f"{place}: `{kind}` blocks are not allowed in a message of the {role}"
    if kind == "text" and not block["text"].strip():
        yield f"{place}: text content blocks must contain non-whitespace text"
    if kind == "tool_use" and (not _NAME.fullmatch(block["id"]) or not isinstance(block["input"], dict)):
        yield f"{place}.tool_use: `id` must match '^[a-zA-Z0-9_-]+$', and `input` must be an object"
    if kind in ("image", "document"):
        yield from _source(f"{place}.{kind}.source", kind, block["source"])
    inner = block.get("content") if kind == "tool_result" else None
    for number, one in enumerate(inner if isinstance(inner, list) else ()):
        yield from _block(f"{place}.content.{number}", "user", one)


def _source(place: str, kind: str, source: Json) -> Iterator[str]:
    if source["type"] == "base64":
        if source["media_type"] not in (_IMAGES if kind == "image" else ("application/pdf",)):
            yield f"{place}.base64.media_type: Input should be one of the supported types"
        try:
            base64.b64decode(source["data"], validate=True)
        except binascii.Error:
            yield f"{place}.base64.data: invalid base64 data"
    elif source["type"] == "url" and not source["url"].startswith("https://"):
        yield f"{place}.url: Only HTTPS URLs are supported."
    elif source["type"] not in ("url", "file", "text"):
        yield f"{place}: Input tag does not match any of the expected tags"


def _thoughts(place: str, blocks: list[Json], ledger: Ledger) -> Iterator[str]:
    """Thoughts must be the server's own, and an answer with calls must come back in its order, with all of them."""
    for number, block in enumerate(blocks):
        if block["type"] == "thinking" and block["signature"] not in (sign(block["thinking"]), sign("omitted")):
            yield f"{place}.content.{number}: Invalid `signature` in `thinking` block"
        if block["type"] == "redacted_thinking" and block["data"] not in ledger.data:
            yield f"{place}.content.{number}: Invalid `data` in `redacted_thinking` block"
        if block["type"] == "tool_use" and (given := ledger.answers.get(block["id"])) and given != outline(blocks):
            yield (
                f"{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be changed. "
                f"These blocks must remain as they were in the original response. ({given} {outline(blocks)})"
            )


def _marks(body: Json) -> Iterator[str]:
    marked = [block for block in list_blocks(body) if block.get("cache_control") is not None]
    if len(marked) + (body.get("cache_control") is not None) > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    if any(block["type"] in _THOUGHTS for block in marked if "type" in block):
        yield "cache_control cannot be set for thinking blocks"
    for block in marked:
        if block["cache_control"].get("type") != "ephemeral":
            yield "cache_control: Input tag does not match 'ephemeral'"


def list_blocks(body: Json) -> list[Json]:
    """Return the tools and blocks of a request in the order of its prompt."""
    system = body.get("system") or []
    found = [*(body.get("tools") or []), *([{"type": "text", "text": system}] if isinstance(system, str) else system)]
    for turn in body["messages"]:
        for block in _blocks(turn):
            inner = block.get("content") if block["type"] == "tool_result" else None
            found += [one for one in inner if one.get("cache_control")] if isinstance(inner, list) else []
            found.append(block)
    return found


def _blocks(turn: Json) -> list[Json]:
    content = turn["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def measure_prefixes(body: Json) -> list[tuple[str, int, bool]]:
    """Return each beginning of a request: its hash, its tokens, and whether a mark ends it."""
    found, digest, size = [], hashlib.sha256(), 0
    for block in list_blocks(body):
        text = json.dumps({name: value for name, value in block.items() if name != "cache_control"})
        digest.update(text.encode())
        size += len(text) // 4
        found.append((digest.hexdigest(), size, block.get("cache_control") is not None))
    return found
