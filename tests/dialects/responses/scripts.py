"""Answers that a run may give, chunk by chunk, for tests that look at all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.calls import ClientTool
from gateway.dialects.responses.response_metadata import ResponseFacts
from tests.dialects.responses.schema import check_frames

RESPONSE_ID = "resp_" + "0123456789ab" * 2
HEX = RESPONSE_ID.removeprefix("resp_")
CREATED_S, ENDED_S = 1_700_000_000.9, 1_700_000_007.5
REQUEST_ID = "run_" + "ba9876543210" * 2
USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 30,
        "completion_tokens": 20,
        "total_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 10, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 7},
    },
}
FAILURE = GatewayError("upstream_timeout", "The model took too long.")
CANCELLED = GatewayError("run_cancelled", "The run was cancelled.")
#: Tools of a client, one of each kind.
TOOLS: Mapping[str, ClientTool] = {
    "patch": ClientTool(kind="custom", name="patch"),
    "files__read": ClientTool(kind="function", name="read", namespace="files"),
    **{kind: ClientTool(kind=kind, name=kind) for kind in ("shell", "local_shell", "apply_patch")},
}
FIELDS: Json = {"model": "m", "stream": True}
EVERYTHING: Json = {
    "model": "m",
    "instructions": "Be brief.",
    "previous_response_id": "resp_" + "1" * 24,
    "metadata": {"team": "blue"},
    "temperature": 0.5,
    "top_p": 0.9,
    "presence_penalty": 0.25,
    "frequency_penalty": -0.25,
    "max_output_tokens": 100,
    "max_tool_calls": 3,
    "parallel_tool_calls": False,
    "truncation": "auto",
    "store": False,
    "user": "u",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "service_tier": "flex",
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "shape", "schema": {"type": "object"}, "strict": True},
    },
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True},
        {"type": "function", "name": "bare"},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
        {"type": "mcp", "server_label": "notes", "allowed_tools": ["find"], "require_approval": "always"},
        {"type": "web_search"},
    ],
    "include": ["reasoning.encrypted_content"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The chunks of a run, and the error that it ends with."""

    chunks: Sequence[Chunk]
    error: GatewayError | None = None
    background: bool = False
    facts: ResponseFacts = field(
        default_factory=lambda: ResponseFacts(fields=FIELDS, client=TOOLS, shows_calls=True, left_out=["web_search"])
    )

    def answer(self) -> ResponseAnswer:
        """Return the writer of the answer."""
        return ResponseAnswer(
            self.facts,
            response_id=RESPONSE_ID,
            created_s=CREATED_S,
            now_s=lambda: ENDED_S,
            background=self.background,
            seal=lambda text: f"sealed:{len(text)}",
        )

    def frames(self, *, after: int = -1) -> list[bytes]:
        """Return the frames of the stream: those before the first chunk, of each chunk, and of the end."""
        stream = self.answer().build_stream_writer(after)
        frames = [stream.build_first_frame(), *map(stream.build_frames, self.chunks)]
        last = stream.finish() if self.error is None else stream.build_error_frames(self.error, request_id=REQUEST_ID)
        return [*frames, last]

    def events(self) -> list[Json]:
        """Return all events, checked."""
        return check_frames(b"".join(self.frames()))

    def ended(self) -> ResponseAnswer:
        """Return the answer with all of its chunks."""
        answer = self.answer()
        answer.read(self.chunks)
        if self.error is None:
            answer.end()
        else:
            answer.fail(self.error, request_id=REQUEST_ID)
        return answer


def thought(text: str, field: str = "reasoning_content") -> Chunk:
    return chunks.build_delta({field: text})


def call(name: str, arguments: str, *, call_id: str = "call_1", index: int = 0) -> Chunk:
    function = {"name": name, "arguments": arguments}
    return chunks.build_delta(
        {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
    )


def piece(arguments: str, *, index: int = 0) -> Chunk:
    return chunks.build_delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


def listed(*tools: tuple[str | None, str]) -> Chunk:
    entries = [
        {"tool": name, "service": service, "description": f"About {name}.", "parameters": {"type": "object"}}
        for service, name in tools
    ]
    return chunks.build_event({"type": "tools.listed", "tools": entries})


def begun(number: int, tool: str = "notes.find", service: str | None = "notes", approval: str | None = None) -> Chunk:
    return chunks.build_event({"type": "tool.started", **_call(number, tool, service, approval)})


def done(
    number: int,
    result: str = "found",
    *,
    ok: bool = True,
    tool: str = "notes.find",
    service: str | None = "notes",
    approval: str | None = None,
) -> Chunk:
    told = {**_call(number, tool, service, approval), "ok": ok, "result": result}
    return chunks.build_event({"type": "tool.finished", **told})


def question(*ids: str, tool: str = "notes.drop", service: str | None = "notes") -> Chunk:
    approvals = [
        {
            "id": one,
            "tool": tool,
            "service": service,
            "call_id": f"call_{one}",
            "arguments": {"id": 7},
            "edited_arguments": None,
            "state": "pending",
        }
        for one in ids
    ]
    return chunks.build_event({"type": "approval.required", "run_id": "run_1", "approvals": approvals})


def resumed(said: str) -> Chunk:
    return chunks.build_event({"type": "run.resumed", "run_id": "run_1", "said": said})


def _call(number: int, tool: str, service: str | None, approval: str | None) -> Json:
    arguments = f'{{"n":{number}}}'
    names = {"tool": tool, "service": service, "call_id": f"call_{number}", "number": number}
    return {**names, "arguments": arguments, "approval_id": approval}


_CITED = {"type": "url_citation", "url_citation": {"url": "http://a", "title": "A", "start_index": 0, "end_index": 2}}
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}
_PATCH = '{"type":"update_file","path":"a.py","diff":"+x"}'
STOP, CALLS = chunks.build_finish("stop"), chunks.build_finish("tool_calls")

COMPACTED = ResponseFacts(fields=FIELDS, compaction="sealed")
COMPACTS = ResponseFacts(fields=FIELDS, compacts=True)
SCRIPTS: Mapping[str, Script] = {
    "text": Script(chunks=["Hel", "lo", STOP, USAGE]),
    "nothing": Script(chunks=[STOP]),
    "not even an end": Script(chunks=[]),
    "newlines first": Script(chunks=["\n", "\n\nHi", "\n", STOP]),
    "thoughts and text": Script(chunks=[thought("Hm"), thought("m", "reasoning"), "\nYes.", STOP, USAGE]),
    "text and thoughts": Script(chunks=["Yes.", thought("Hm"), thought("m."), STOP]),
    "both names of thoughts": Script(
        chunks=[chunks.build_delta({"reasoning_content": "Hm", "reasoning": "Hm"}), "Yes."]
    ),
    "refusal": Script(chunks=[chunks.build_delta({"refusal": "I "}), chunks.build_delta({"refusal": "can't."}), STOP]),
    "refusal in a text": Script(chunks=["Sure", chunks.build_delta({"refusal": "No."}), "!", STOP]),
    "parts": Script(chunks=[chunks.build_delta({"content": [{"type": "text", "text": "a"}, _IMAGE]}), "b", STOP]),
    "images": Script(chunks=[chunks.build_delta({"content": "See:", "images": [_IMAGE, _IMAGE]}), STOP]),
    "citations": Script(chunks=["A b", chunks.build_delta({"annotations": [_CITED, {"type": "file"}]}), " c", STOP]),
    "own call": Script(chunks=["Let me.", call("f", '{"a":1}'), CALLS]),
    "own calls": Script(chunks=[call("f", "{}"), call("g", "", call_id="call_2", index=1), CALLS]),
    "own calls of one index": Script(chunks=[call("f", "{}"), call("g", "{}", call_id="call_2"), CALLS]),
    "own call in pieces": Script(chunks=[call("f", ""), piece('{"a"'), piece(":1}"), STOP]),
    "own call without an id": Script(chunks=[call("f", "{}", call_id=""), CALLS]),
    "function call": Script(
        chunks=[
            chunks.build_delta({"function_call": {"name": "f", "arguments": "{}"}}),
            chunks.build_finish("function_call"),
        ]
    ),
    "custom tool": Script(chunks=[call("patch", '{"input":"*** a"}'), CALLS]),
    "custom tool in pieces": Script(chunks=[call("patch", '{"in'), piece('put":"x"}'), CALLS]),
    "custom tool, wrong arguments": Script(chunks=[call("patch", "x"), CALLS]),
    "namespace": Script(chunks=[call("files__read", "{}"), CALLS]),
    "tools without a schema": Script(
        chunks=[
            call("shell", '{"commands":["ls"]}'),
            call("local_shell", '{"command":["ls"]}', call_id="call_2", index=1),
            call("apply_patch", _PATCH, call_id="call_3", index=2),
            "Done.",
        ]
    ),
    "a patch alone": Script(chunks=[call("apply_patch", _PATCH), CALLS]),
    "lists of tools": Script(chunks=[listed(("notes", "notes.find"), (None, "clock"), ("notes", "notes.drop")), "Hi."]),
    "calls": Script(
        chunks=[listed(("notes", "notes.find")), "Look.", begun(0), done(0), "\n\nThere.", STOP, USAGE],
    ),
    "failed call": Script(chunks=[begun(0), done(0, "no such note", ok=False), "No.", STOP]),
    "refused call": Script(chunks=[done(0, "refused", ok=False, tool="clock", service=None), "No.", STOP]),
    "calls at once": Script(chunks=[begun(0), begun(1), "so far", done(1), done(0), "Both.", STOP]),
    "call without a result": Script(chunks=[begun(0), STOP]),
    "question": Script(chunks=["I'd drop it.", question("ap_1", "ap_2"), STOP]),
    "held question": Script(
        chunks=[
            "Drop?",
            question("ap_1"),
            chunks.build_event({"type": "approval.resolved", "approval_id": "ap_1", "state": "approved"}),
            begun(0, approval="ap_1"),
            done(0, "", approval="ap_1"),
            "Gone.",
            STOP,
        ]
    ),
    "cut in a text": Script(
        chunks=["One. ", begun(0), done(0), "Tw", resumed("One. "), begun(0), done(0), "Two.", STOP]
    ),
    "cut in thoughts": Script(chunks=[thought("Hm"), resumed(""), thought("Hmm"), "Yes.", STOP]),
    "cut before a text was shown": Script(chunks=["One.", resumed("One. Two. "), "Three.", STOP]),
    "cut in a call": Script(chunks=[begun(0), resumed(""), begun(0), done(0), "There.", STOP]),
    "cut behind own calls": Script(chunks=[call("f", "{}"), resumed(""), call("f", "{}"), CALLS]),
    "too long": Script(chunks=["One, tw", chunks.build_finish("length"), USAGE]),
    "filtered": Script(chunks=["One", chunks.build_finish("content_filter")]),
    "too long before the first word": Script(chunks=[thought("Hm"), chunks.build_finish("length")]),
    "too long in a call": Script(chunks=[call("f", '{"a'), chunks.build_finish("length")]),
    "too long in a patch": Script(chunks=[call("apply_patch", '{"ty'), chunks.build_finish("length")]),
    "failure": Script(chunks=["One", begun(0)], error=FAILURE),
    "failure at once": Script(chunks=[], error=FAILURE),
    "limited": Script(chunks=["a"], error=GatewayError("upstream_limited", "Too many.", param="model")),
    "rejected": Script(chunks=[], error=GatewayError("upstream_rejected", "The input is too long.")),
    "cancelled": Script(chunks=["One"], error=CANCELLED, background=True),
    "background": Script(chunks=["One", STOP, USAGE], background=True),
    "background, nothing": Script(chunks=[], background=True),
    "everything asked": Script(
        chunks=["{}", STOP, USAGE], facts=ResponseFacts(fields=EVERYTHING, left_out=["web_search"])
    ),
    "compacted first": Script(chunks=["One", STOP, USAGE], facts=COMPACTED),
    "compacted first, nothing": Script(chunks=[STOP], facts=COMPACTED, background=True),
    "compacted first, failure": Script(chunks=["One"], facts=COMPACTED, error=FAILURE),
    "compaction": Script(chunks=["Sum", "mary", STOP, USAGE], facts=COMPACTS),
    "estimated": Script(chunks=["x", {**USAGE, "context": {"usage_estimated": True}}]),
}
