"""The client of one run: it asks, reads the question, approves it, and comes back after a crash."""

import asyncio
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp
from gateways import until

from gateway.contracts.storage.journal import ENDED

from .effects import Json, Stored, effects, stored, words

CHAT = "/context/v1/chat/completions"
Way = Literal["chat", "rest"]
#: How long the question is looked at.
THINKS_S = 0.01
_APPROVAL = re.compile(r"ap_[a-z2-7]{26}")


class Refused(Exception):  # noqa: N818 - what was answered, not what went wrong
    """An answer other than 200."""


@dataclass(slots=True)
class Person:
    """Whoever wants the ten lines of `run` written; `way` is how they approve.

    `at_s` is when what happened, as this client saw it.
    """

    session: aiohttp.ClientSession
    url: str
    folder: Path
    run: str
    way: Way
    at_s: dict[str, float] = field(default_factory=dict)
    question: str = ""
    approval_id: str | None = None
    approved: bool = False  # the 200 arrived
    told: list[str] = field(default_factory=list)  # what was said instead of a question
    resolved: list[int] = field(default_factory=list)

    async def drive(self) -> None:
        """The whole conversation, as it goes when nothing happens."""
        await self._ask()
        await asyncio.sleep(THINKS_S)  # a person who thinks is the case: some kills come meanwhile
        await self._approve()

    async def come_back(self) -> Stored:
        """After a crash: says again what was not answered, and stays until the run has ended."""
        while True:
            found = self.found()
            if found is None or (self.approval_id is None and found.state in ("running", "awaiting_approval")):
                await self._ask(again=True)
            elif found.state in ENDED:
                self._answered(await self._answer(found))
                return found
            elif found.state == "unknown":
                await self._look(found)
            elif not self.approved:
                await self._approve(again="approve" in self.at_s)
            else:
                await asyncio.sleep(0.05)

    def found(self) -> Stored | None:
        """The run as the store has it."""
        runs = stored(self.folder / "gateway.db", self.run)
        assert len(runs) <= 1, f"one request, {len(runs)} runs: {runs}"
        return runs[0] if runs else None

    async def _ask(self, *, again: bool = False) -> None:
        self._now("asked")
        text = await self._chat([{"role": "user", "content": words(self.run)}], again=again)
        if (approval_id := _APPROVAL.search(text)) is not None:
            self._now("question")
            self.question, self.approval_id = text, approval_id[0]
        else:
            self._answered(text)

    async def _approve(self, *, again: bool = False) -> None:
        assert self.approval_id is not None
        self._now("approve")
        if self.way == "chat":
            text = await self._chat(
                [
                    {"role": "user", "content": words(self.run)},
                    {"role": "assistant", "content": self.question},
                    {"role": "user", "content": f"approve {self.approval_id}"},
                ],
                again=again,
            )
            self.approved = True
            self._answered(text)
        else:
            view = await self._post(f"/context/approvals/{self.approval_id}", {"decision": "approve"})
            self.approved = True
            assert view["state"] in ("approved", "executing", "done", "unknown"), view

    async def _answer(self, found: Stored) -> str:
        """The answer that is on record."""
        async with self.session.get(f"{self.url}/context/runs/{found.run_id}") as response:
            view = await response.json()
        text: str = (view["answer"] or {}).get("content", "")
        return text

    async def _look(self, found: Stored) -> None:
        """Says what became of a call of which the gateway knows nothing: the ledger is there to be read."""
        (step,) = (step for step in found.steps if step.state in ("unknown", "started"))
        done = any(effect.n == step.n for effect in effects(self.folder, self.run))
        finding = {"step": step.number, "as": "done" if done else "retry"}
        await self._post(f"/context/runs/{found.run_id}/resume", finding)
        self.resolved.append(step.n)
        await until(lambda: (now := self.found()) is None or now.state != "unknown")

    def _answered(self, text: str) -> None:
        self._now("answer")
        self.told.append(text)

    def _now(self, what: str) -> None:
        self.at_s.setdefault(what, time.time())

    async def _chat(self, messages: list[Json], *, again: bool = False) -> str:
        headers = {"X-Stainless-Retry-Count": "1"} if again else {}
        completion = await self._post(CHAT, {"model": "demo", "messages": messages}, headers)
        text: str = completion["choices"][0]["message"]["content"]
        return text

    async def _post(self, path: str, body: Json, headers: dict[str, str] | None = None) -> Json:
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            found: Json = await response.json()
            if response.status != 200:
                raise Refused(f"{path} {body}: {response.status} {found}")
            return found
