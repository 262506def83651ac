"""The client of one run over the Responses API: it asks, reads, decides, and comes back wherever it was cut."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from gateway.contracts.storage.journal import ENDED

from .effects import STEPS, Json, Stored, effects, stored, words
from .person import THINKS_S, Refused
from .reading import OVER, RESPONSES, Reading

#: The ledger, and every call of it shown.
TOOLS: Sequence[Json] = ({"type": "mcp", "server_label": "gateway", "allowed_tools": ["ledger"]},)
ENDED_WELL, UNKNOWN = f"round {STEPS} of tool calls is done", "what became of it is unknown"
AGAIN: Mapping[str, str] = {"X-Stainless-Retry-Count": "1"}
#: How long a client waits before it looks again.
PAUSE_S = 0.02
#: So often the result is asked for at most.
ASKS = 5


@dataclass(frozen=True, slots=True)
class Way:
    """How a client asks and decides: `by_rest`, or in its next request; `held`: the answer stays open meanwhile.

    `thinks`: the model thinks before each call, word by word.
    """

    by_rest: bool = False
    held: bool = False
    background: bool = True
    thinks: bool = False

    @property
    def is_early(self) -> bool:
        """Whether it decides while the answer with the question is open still, if it has the question by then."""
        return self.by_rest or self.held

    def __str__(self) -> str:
        asked = "in the background" if self.background else "in the foreground"
        how = ", held" * self.held + ", with thoughts" * self.thinks
        return f"{asked}{how}, decided by {'REST' if self.by_rest else 'the next response'}"


@dataclass(slots=True)
class Asker:
    """Whoever wants the ten lines of `run` written. `at_s` is when what happened, as this client saw it."""

    session: aiohttp.ClientSession
    url: str
    folder: Path
    run: str
    way: Way
    readings: list[Reading] = field(default_factory=list)
    at_s: dict[str, float] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)  # and answered
    resolved: list[int] = field(default_factory=list)
    results: int = 0  # so often the result was asked for

    async def drive(self) -> Stored:
        """Ask, or go on where it was cut, and stay until the run has ended and its end was told.

        Raises ClientError if the gateway is lost.
        """
        while True:
            unread, question = next((one for one in self.readings if not one.done), None), self._question()
            if not self.readings:
                await self._ask()
            elif question is not None and (unread is None or self.way.is_early):
                self._now("question")
                await asyncio.sleep(THINKS_S)  # a person who thinks is the case: some kills come meanwhile
                await self._decide(question)
            elif unread is not None:
                await self._read(unread)
            elif (ended := await self._went_on()) is not None:
                return ended

    async def drive_on(self) -> Stored:
        """Stay, whatever fails meanwhile."""
        while True:
            try:
                return await self.drive()
            except aiohttp.ClientError:
                await asyncio.sleep(PAUSE_S)

    @property
    def events(self) -> int:
        """How many events it has seen."""
        return sum(len(reading.frames) for reading in self.readings)

    @property
    def approval_id(self) -> str | None:
        return next((question for reading in self.readings for question in reading.questions), None)

    def found(self) -> Stored | None:
        """The run as the store has it."""
        runs = stored(self.folder / "gateway.db", self.run)
        assert len(runs) <= 1, f"one request, {len(runs)} runs: {runs}"
        return runs[0] if runs else None

    def _question(self) -> str | None:
        """A question that it has seen and not answered."""
        seen = (question for reading in self.readings for question in reading.questions)
        return next((question for question in seen if question not in self.decided), None)

    async def _went_on(self) -> Stored | None:
        """Wait for a run that no response of this client tells of any more. Return it once its end was told."""
        found = self.found()
        if found is None or "pending" in found.approvals.values():
            await self._ask()
        elif found.state in ENDED:
            if any(ENDED_WELL in reading.text for reading in self.readings):
                return found
            await self._ask_for_result()
        elif found.state == "unknown":
            told = sum(UNKNOWN in reading.text for reading in self.readings)
            await (self._look(found) if told > len(self.resolved) else self._ask_for_result())
        else:
            await asyncio.sleep(PAUSE_S)
        return None

    async def _ask_for_result(self) -> None:
        """Ask again: the run went on without a response of this client."""
        self.results += 1
        assert self.results <= ASKS, f"nobody tells the end of {self.run}: {[one.items for one in self.readings]}"
        await (self._ask() if self.approval_id is None else self._approve(self.approval_id))

    async def _ask(self) -> None:
        thinks = "think drip 2 " if self.way.thinks else ""
        await self._create("asked", {"input": thinks + words(self.run)})

    async def _decide(self, approval_id: str) -> None:
        if self.way.by_rest:
            path = f"{self.url}/context/approvals/{approval_id}"
            self._now("approve")
            async with self.session.post(path, json={"decision": "approve"}) as response:
                await accepted(response)
                view = await response.json()
                assert view["state"] in ("approved", "executing", "done", "unknown"), view
            self.decided.add(approval_id)
        else:
            await self._approve(approval_id)

    async def _approve(self, approval_id: str) -> None:
        """In the next response, also where somebody else has decided before."""
        asked = next(reading for reading in self.readings if approval_id in reading.questions)
        decision = {"type": "mcp_approval_response", "approval_request_id": approval_id, "approve": True}
        before = asked if asked.done else None  # nothing continues an answer that is open
        await self._create("approve", {"input": [decision]}, before=before, decides=approval_id)

    async def _create(
        self, what: str, fields: Json, *, before: Reading | None = None, decides: str | None = None
    ) -> None:
        """A response, read to its end."""
        again = what in self.at_s
        self._now(what)
        headers = {**(AGAIN if again else {}), "X-Context-Approvals": "hold" if self.way.held else "turn"}
        body = {"model": "demo", "tools": TOOLS, "stream": True, "background": self.way.background, **fields}
        if before is not None:
            body["previous_response_id"] = before.id
        async with self.session.post(f"{self.url}{RESPONSES}", json=body, headers=headers) as response:
            await accepted(response)
            reading = Reading(self.way.background, before)
            try:
                await reading.take(response, until=lambda: self._has_begun(reading, decides) and self._is_asked())
            finally:
                self._has_begun(reading, decides)

    def _has_begun(self, reading: Reading, decides: str | None) -> bool:
        """Note a response that has an id: from here on the client can come back to it."""
        if reading.id and reading not in self.readings:
            self.readings.append(reading)
            if decides is not None:
                self.decided.add(decides)
        return bool(reading.id)

    def _is_asked(self) -> bool:
        """Whether to leave a stream: its answer stays open until somebody decides."""
        return self.way.held and self._question() is not None

    async def _read(self, reading: Reading) -> None:
        """Read on where it was cut: behind the last event, or where there are none, as it stands."""
        path = f"{self.url}{RESPONSES}/{reading.id}"
        if reading.background:
            behind = f"&starting_after={len(reading.frames) - 1}"
            async with self.session.get(f"{path}?stream=true{behind}") as response:
                await accepted(response)
                await reading.take(response, until=self._is_asked)
            return
        async with self.session.get(path) as response:
            if response.status == 404:
                assert self.found() is None, f"{path}: {await response.text()}, {self.found()}"
                self.readings.remove(reading)
                return
            await accepted(response)
            found = await response.json()
        reading.last, reading.done = found, found["status"] in OVER
        if not reading.done:
            await asyncio.sleep(PAUSE_S)

    async def _look(self, found: Stored) -> None:
        """Say what became of a call of which the gateway knows nothing: the ledger is there to be read."""
        (step,) = (step for step in found.steps if step.state in ("unknown", "started"))
        done = any(effect.n == step.n for effect in effects(self.folder, self.run))
        finding = {"step": step.number, "as": "done" if done else "retry"}
        async with self.session.post(f"{self.url}/context/runs/{found.run_id}/resume", json=finding) as response:
            await accepted(response)
        self.resolved.append(step.n)

    def _now(self, what: str) -> None:
        self.at_s.setdefault(what, time.time())


async def accepted(response: aiohttp.ClientResponse) -> None:
    """Raise Refused, or ClientError where the gateway cannot answer now: it stops, or its store is locked."""
    if response.status != 200:
        text = f"{response.method} {response.url}: {response.status} {await response.text()}"
        raise aiohttp.ClientError(text) if response.status in (503, 507) else Refused(text)
