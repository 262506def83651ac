"""An answer and those who read it: everybody gets all of it, and the slowest is waited for."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.runs import transcript as module
from gateway.runs.transcript import BEHIND_CHARS, Transcript


def text(content: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": content}}]}


class Client:
    """Takes chunks; while `slow` it wants to be waited for after each."""

    def __init__(self, *, slow: bool = False) -> None:
        self.got: list[Json] = []
        self.slow = slow
        self.ready = asyncio.Event()

    def take(self, chunks: Sequence[Json]) -> bool:
        assert not self.slow or not self.got or self.ready.is_set(), "it was to be waited for"
        self.got += chunks
        return not self.slow

    async def wait_until_caught_up(self) -> None:
        await self.ready.wait()


async def idle() -> None:
    """Until nothing is left to do but wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_every_reader_receives_all_chunks_in_order() -> None:
    """Whoever comes late from the first chunk on; each chunk as it comes."""
    transcript, early, late = Transcript(), Client(), Client()
    reading = [asyncio.create_task(transcript.read(early))]
    for n in range(3):
        await idle()
        assert transcript.add(text(str(n)))
    await idle()
    assert early.got == [text("0"), text("1"), text("2")]
    reading.append(asyncio.create_task(transcript.read(late)))
    transcript.add(text("3"))
    transcript.end()
    await asyncio.gather(*reading)
    assert early.got == late.got == list(await transcript.wait_for_whole()) == [text(str(n)) for n in range(4)]


async def test_run_error_is_raised_to_every_reader_after_the_answer() -> None:
    """To each who reads it, however often."""
    transcript, failure = Transcript(), GatewayError("upstream_error", "No.")
    transcript.add(text("x"))
    transcript.end(failure)
    for _ in range(3):
        client = Client()
        with pytest.raises(GatewayError) as told:
            await transcript.read(client)
        assert repr(told.value) == repr(failure) and client.got == [text("x")]
        with pytest.raises(GatewayError):
            await transcript.wait_for_whole()


async def test_transcript_waits_for_the_slowest_client() -> None:
    """As far as it may be behind; then until it has caught up."""
    transcript, slow, fast = Transcript(), Client(slow=True), Client()
    reading = [asyncio.create_task(transcript.read(client)) for client in (slow, fast)]
    await idle()
    assert transcript.add(text("begin"))
    await idle()
    assert transcript.add(text("x" * BEHIND_CHARS))
    await idle()
    assert len(slow.got) == 1 and len(fast.got) == 2
    assert not transcript.add(text("y"))
    waiting = asyncio.create_task(transcript.wait_for_room())
    await idle()
    assert not waiting.done() and len(fast.got) == 3
    slow.ready.set()
    await waiting
    transcript.end()
    await asyncio.gather(*reading)
    assert slow.got == fast.got == list(transcript.chunks)


async def test_transcript_does_not_wait_for_a_client_that_left() -> None:
    """Nor is one that fails: its error is its own."""
    transcript, slow, fast = Transcript(), Client(slow=True), Client()
    reading = [asyncio.create_task(transcript.read(client)) for client in (slow, fast)]
    await idle()
    transcript.add(text("begin"))
    await idle()
    assert not transcript.add(text("x" * (BEHIND_CHARS + 1)))
    waiting = asyncio.create_task(transcript.wait_for_room())
    await idle()
    reading[0].cancel()
    await waiting

    class Broken(Client):
        def take(self, chunks: Sequence[Json]) -> bool:
            raise ConnectionResetError

    broken = asyncio.create_task(transcript.read(Broken()))
    with pytest.raises(ConnectionResetError):
        await broken
    late = asyncio.create_task(transcript.read(slow))
    await idle()
    late.cancel()
    transcript.end()
    await reading[1]
    assert fast.got == list(transcript.chunks)


async def test_failing_reader_does_not_affect_others() -> None:
    """Whoever makes the transcript does not see it."""

    class Breaking(Client):
        def take(self, chunks: Sequence[Json]) -> bool:
            if self.got:
                raise ConnectionResetError
            return super().take(chunks)

    transcript, client, breaking = Transcript(), Client(), Breaking()
    good, bad = asyncio.create_task(transcript.read(client)), asyncio.create_task(transcript.read(breaking))
    for n in range(3):
        await idle()
        transcript.add(text(str(n)))
    with pytest.raises(ConnectionResetError):
        await bad
    transcript.end()
    await good
    assert len(client.got) == 3 and len(breaking.got) == 1


async def test_answer_over_the_length_limit_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that never stops is stopped, whatever it says."""
    monkeypatch.setattr(module, "ANSWER_CHARS", 1000)
    for delta in ({"content": "é" * 100}, {"tool_calls": [{"function": {"arguments": "x" * 70}}]}):
        transcript = Transcript()
        for _ in range(8):
            transcript.add({"choices": [{"index": 0, "delta": delta}]})
        with pytest.raises(GatewayError) as stopped:
            transcript.add({"choices": [{"index": 0, "delta": {"content": "x" * 300}}]})
        assert stopped.value.code == "upstream_error" and "1000 characters" in stopped.value.message


async def test_unsettled_chunks_can_be_forgotten() -> None:
    """With its length."""
    transcript = Transcript()
    transcript.add(text("kept"))
    transcript.mark_final()
    transcript.add(text("x" * BEHIND_CHARS))
    transcript.drop_unsettled()
    client = Client()
    reading = asyncio.create_task(transcript.read(client))
    transcript.add(text("new"))
    transcript.end()
    await reading
    assert client.got == [text("kept"), text("new")]


async def test_event_results_count_towards_transcript_size() -> None:
    """In memory, and for a client that is behind: they may be longer than the text."""
    transcript, slow = Transcript(), Client(slow=True)
    reading = asyncio.create_task(transcript.read(slow))
    transcript.add(text("x"))
    await idle()
    before = transcript.size_bytes
    event: Json = {"choices": [], "context": {"type": "tool.finished", "ok": True, "result": "y" * (BEHIND_CHARS + 1)}}
    assert not transcript.add(event) and transcript.size_bytes - before > BEHIND_CHARS
    slow.ready.set()
    transcript.end()
    await reading
    assert slow.got == [text("x"), event]
