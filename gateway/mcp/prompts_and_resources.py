"""The offers of an MCP server beside tools, as MCP clients read them: prompts and resources. Pure, and bounded.

Entries are built anew from the fields that the protocol has. One that does not fit is left out of its list; a prompt or
a resource that does not fit is refused, with the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.aio.cooperative import Work
from gateway.contracts.storage.store import Json
from gateway.mcp.blocks import (
    BLOCKS,
    EVENT_BYTES,
    parse_contents,
    parse_resource_facts,
    parse_resource_link,
    read_blocks,
)
from gateway.mcp.server_text import (
    clean_description,
    count_sent_bytes,
    drop_empty,
    format_one_line,
    parse_icons,
    parse_meta,
    parse_name,
)

ENTRIES: Final = 1000
#: Of one list of one server, in all its pages.
LIST_BYTES: Final = 1 << 20
#: Of one entry: a page of a list must have room for it.
ENTRY_BYTES: Final = 256 << 10
_ARGUMENTS: Final = 100


@dataclass(slots=True)
class Entries:
    """The entries of one list of one server. `read` returns one of them, or raises ValueError; `key` names it."""

    read: Callable[[Json], Json]
    key: str
    found: dict[str, Json] = field(default_factory=dict)
    left_out: int = 0
    _room_bytes: int = LIST_BYTES

    @property
    def is_full(self) -> bool:
        return len(self.found) >= ENTRIES

    def add(self, entries: Any) -> None:
        """Add the entries of a page, of any shape. An entry whose name is there already is left out."""
        for entry in entries if isinstance(entries, list) else ():
            try:
                if not isinstance(entry, dict) or self.is_full:
                    raise ValueError
                one = self.read(entry)
                size_bytes = count_sent_bytes(one)
                if one[self.key] in self.found or size_bytes > min(self._room_bytes, ENTRY_BYTES):
                    raise ValueError
            except ValueError:
                self.left_out += 1
                continue
            self._room_bytes -= size_bytes
            self.found[one[self.key]] = one


def list_no_prompts() -> Entries:
    """Return the empty list of prompts."""
    return Entries(_parse_prompt, "name")


def list_no_resources() -> Entries:
    """Return the empty list of resources."""
    return Entries(parse_resource_link, "uri")


def list_no_templates() -> Entries:
    """Return the empty list of templates of resources."""
    return Entries(_parse_template, "uriTemplate")


#: The lists by the methods that ask for them.
LISTS: Final[Mapping[str, Callable[[], Entries]]] = {
    "prompts/list": list_no_prompts,
    "resources/list": list_no_resources,
    "resources/templates/list": list_no_templates,
}


def read_prompt_result(result: Json) -> Work[Json]:
    """Read the result of `prompts/get` in parts. Raises ValueError with the reason if it is invalid."""
    messages = _require_list(result, "messages")
    if not all(isinstance(one, dict) and one.get("role") in ("user", "assistant") for one in messages):
        raise ValueError("a message is not of the user or the assistant")
    blocks = yield from read_blocks([one.get("content") for one in messages])
    told = [{"role": one["role"], "content": block.block} for one, block in zip(messages, blocks, strict=True)]
    return _check_size({"messages": told, **drop_empty(description=clean_description(result.get("description")))})


def read_resource_result(result: Json) -> Work[Json]:
    """Read the result of `resources/read` in parts. Raises ValueError with the reason if invalid."""
    listed = _require_list(result, "contents")
    texts = [one["text"] for one in listed if isinstance(one, dict) and isinstance(one.get("text"), str)]
    if (size := sum(map(len, texts))) > EVENT_BYTES:  # cleaning it would cost more than it is worth
        raise ValueError(f"it has {size:,} characters, which is more than {EVENT_BYTES:,}")
    contents: list[Json] = []
    for one in listed:
        contents += [(yield from parse_contents(one))]
    return _check_size({"contents": contents})


def _require_list(result: Json, key: str) -> Sequence[Any]:
    """Return the list under this key of a result. Raises ValueError if it is missing or too long."""
    listed = result.get(key)
    if not isinstance(listed, list):
        raise ValueError(f"it has no {key}")
    if len(listed) > BLOCKS:
        raise ValueError(f"it has {len(listed):,} {key}, which is more than {BLOCKS:,}")
    return listed


def _check_size(result: Json) -> Json:
    size_bytes = count_sent_bytes(result)
    if size_bytes > EVENT_BYTES:
        raise ValueError(f"it has {size_bytes:,} bytes, which is more than {EVENT_BYTES:,}")
    return result


def _parse_prompt(entry: Json) -> Json:
    """Return a prompt's description as clients may read it. Raises ValueError."""
    arguments = entry.get("arguments")
    listed = arguments if isinstance(arguments, list) else []
    if (name := parse_name(entry.get("name"))) is None or len(listed) > _ARGUMENTS:
        raise ValueError
    return {
        "name": name,
        **drop_empty(
            title=format_one_line(entry.get("title")),
            description=clean_description(entry.get("description")),
            arguments=[_parse_argument(one) for one in listed],
            icons=parse_icons(entry.get("icons")),
            meta=parse_meta(entry.get("_meta")),
        ),
    }


def _parse_argument(value: Any) -> Json:
    if not isinstance(value, dict) or (name := parse_name(value.get("name"))) is None:
        raise ValueError
    about = drop_empty(
        title=format_one_line(value.get("title")), description=clean_description(value.get("description"))
    )
    return {"name": name, **about, "required": value.get("required") is True}


def _parse_template(entry: Json) -> Json:
    return {
        "uriTemplate": parse_resource_link({**entry, "uri": entry.get("uriTemplate")})["uri"],
        **parse_resource_facts(entry),
    }
