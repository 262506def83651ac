"""Streams that mix the habits of all rooms, in pieces of any bytes, and cut anywhere; and what may come of each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal

from aiohttp import web
from hypothesis import strategies as st

from .answers import Answer, Style, written
from .calls import Call, Json
from .clients import Client, Got, events
from .room import Room
from .rooms import ROOMS
from .serving import ANSWER, BROKEN, FOUND, THOUGHT

Kind = Literal["text", "call", "calls", "own"]
#: What models say; the last ones look a little like a call.
TEXTS: Final = (
    ANSWER,
    "Ünter dem Spiegel: 鏡の後ろ 🪞🪞.",
    'He said: "C:\\safe"\n\n\tand left.\r\n',
    'Write {"word": "safe"} into it, or `{"tool": "x"}`.',
    "x" * 700,
)
_OWN: Final = {"tool": "file_operations", "parameters": {"operation": "read", "path": "notes.txt"}, "terminate": False}


@dataclass(frozen=True)
class Plan:
    """One stream: its style, what it says, where it is split, and where it ends if it is cut.

    `error_after`: an error of a room follows that many events, in place of the rest.
    """

    style: Style
    kind: Kind
    text: str
    splits: tuple[int, ...]
    cut: int | None
    is_aborted: bool
    is_ascii: bool
    has_crlf: bool
    breaks: Room | None
    error_after: int

    @cached_property
    def answer(self) -> Answer:
        """Return what the model says first."""
        match self.kind:
            case "text":
                return Answer(self.text, THOUGHT)
            case "own":
                return Answer(json.dumps(_OWN), THOUGHT)
        calls = [Call(f"{at}kJ7pQx2Z", "look_up", json.dumps(found)) for at, found in enumerate(FOUND, 1)]
        return Answer(thought=THOUGHT, calls=tuple(calls if self.kind == "calls" else calls[:1]))

    @cached_property
    def events(self) -> list[str]:
        """Return the events, before they are cut."""
        found = [self._spelt(one) for one in written(self.style, self.answer)]
        if self.breaks is not None:
            finish = next(at for at, one in enumerate(found) if _finishes(one))
            found = [*found[: min(self.error_after, finish)], self.breaks.broken(BROKEN)]
        return [one.replace("\n", "\r\n") for one in found] if self.has_crlf else found

    @cached_property
    def raw(self) -> bytes:
        """Return the bytes of the stream."""
        return "".join(self.events).encode()

    @property
    def end(self) -> int | None:
        """Return the length of the stream if it is cut: any number falls somewhere in it."""
        return None if self.cut is None else self.cut % len(self.raw)

    @cached_property
    def must_fail(self) -> bool:
        """Return whether nobody can know from the stream that its answer is whole."""
        if self.breaks is not None:
            return True
        length = 0
        for one in self.events:
            length += len(one.encode())
            if _finishes(one):
                return self.end is not None and self.end < length - 4
        raise AssertionError("an answer has a finish reason")

    @cached_property
    def pieces(self) -> list[bytes]:
        """Return the stream in pieces."""
        raw = self.raw[: self.end]
        marks = sorted({0, *(at % (len(raw) + 1) for at in self.splits), len(raw)})
        return [raw[a:b] for a, b in pairwise(marks)]

    def _spelt(self, one: str) -> str:
        if self.is_ascii or not one.startswith("data: {"):
            return one
        return f"data: {json.dumps(json.loads(one[6:]), ensure_ascii=False, separators=(',', ':'))}\n\n"


def _finishes(one: str) -> bool:
    if not one.startswith("data: {"):
        return False
    return any(choice.get("finish_reason") for choice in json.loads(one[6:]).get("choices") or ())


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a stream that has each of its habits from some room."""
    rooms = st.sampled_from(ROOMS)
    begin, filler, spelling, calls, end, counting, thinking = (draw(rooms).style for _ in range(7))
    style = replace(
        begin,
        delta=filler.delta,
        choice=filler.choice,
        chunk=spelling.chunk,
        unfinished=spelling.unfinished,
        fresh_ids=spelling.fresh_ids,
        calls=calls.calls,
        most_calls=calls.most_calls,
        called=calls.called,
        done=end.done,
        behind=end.behind,
        closing=end.closing,
        finish_with_last=end.finish_with_last,
        usage=counting.usage,
        tokens=counting.tokens,
        thought=thinking.thought,
        parts=thinking.parts,
    )
    return Plan(
        style,
        kind=draw(st.sampled_from(("text", "call", "calls", "own"))),
        text=draw(st.sampled_from(TEXTS)),
        splits=tuple(draw(st.lists(st.integers(0, 5000), max_size=6))),
        cut=draw(st.none() | st.integers(0, 5000)),
        is_aborted=draw(st.booleans()),
        is_ascii=draw(st.booleans()),
        has_crlf=draw(st.booleans()),
        breaks=draw(st.none() | st.none() | rooms),
        error_after=draw(st.integers(0, 12)),
    )


@dataclass
class ChaoticServer:
    """A server that writes the stream whose number the user says. `ran`: the numbers of which a tool was run."""

    plans: Sequence[Plan] = ()
    ran: set[int] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body = await request.json()
        number = _number_in(body)
        plan = self.plans[number]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if body["messages"][-1]["role"] == "tool":
            self.ran.add(number)
            await response.write("".join(written(plan.style, Answer(plan.text, THOUGHT))).encode())
            return response
        for piece in plan.pieces:
            await response.write(piece)
        if plan.cut is not None and plan.is_aborted and request.transport is not None:
            request.transport.close()
        return response


def _number_in(body: Json) -> int:
    said = next(one["content"] for one in reversed(body["messages"]) if one["role"] == "user")
    return int(said.rpartition("number ")[2])


def faults(plan: Plan, client: Client, status: int, raw: str, *, is_stream: bool, has_run: bool) -> list[str]:
    """Return what is wrong with what a client got."""
    failed, shown = _outcome(client, status, raw, is_stream=is_stream)
    found = []
    if plan.must_fail and not failed:
        found.append("half of an answer counts as a whole one")
    if plan.must_fail and has_run:
        found.append("a call of an answer that was cut has run")
    if plan.cut is None and plan.breaks is None and failed:
        found.append("a whole answer counts as broken")
    if failed:
        whole = _text(plan)
        if plan.kind == "text" and not whole.startswith(shown):
            found.append("the text so far is not the beginning of the text")
        return found
    got = client.read(raw, is_stream=is_stream)
    return [*found, *_differences(plan, got, has_run=has_run)]


def _differences(plan: Plan, got: Got, *, has_run: bool) -> list[str]:
    found = []
    called = [json.loads(one) for one in got.arguments]
    wanted = {"call": 1, "calls": plan.style.most_calls}.get(plan.kind, 0)
    if called != list(FOUND[:wanted]) or len({call.id for call in got.calls}) != wanted:
        found.append(f"its calls are {got.calls}")
    if (plan.kind == "own") != has_run:
        found.append("the gateway's tool has not run, or without a call")
    text = {"text": _text(plan), "own": _text(plan)}.get(plan.kind, "")
    if not (got.text.endswith(text) if plan.kind == "own" else got.text in (text, _tagged(plan))):
        found.append(f"its text is {got.text!r}")
    if plan.style.thought[:1].isalpha() and THOUGHT not in got.thought:
        found.append(f"its thoughts are {got.thought!r}")
    return found


def _tagged(plan: Plan) -> str:
    tag = plan.style.thought
    return f"{tag}{THOUGHT}</{tag[1:]}" if tag.startswith("<") else ""


def _text(plan: Plan) -> str:
    return _tagged(plan) + plan.text


def _outcome(client: Client, status: int, raw: str, *, is_stream: bool) -> tuple[bool, str]:
    """Return whether an answer failed, and the text that the client had until then."""
    if status != 200:
        return True, ""
    if not is_stream:
        return False, ""
    told = events(raw)
    if client.name == "chat":
        choices = [choice for one in told for choice in one.get("choices") or ()]
        return "error" in told[-1], "".join(choice["delta"].get("content") or "" for choice in choices)
    texts = [one["delta"] for one in told if one["type"] == "response.output_text.delta"]
    return told[-1]["type"] == "response.failed", "".join(texts)
