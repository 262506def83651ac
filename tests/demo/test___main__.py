"""`python -m gateway.demo` as a user starts it."""

import asyncio
import signal
import sys

import aiohttp

from gateway.demo.functions import NOTE
from gateway.demo.words import format_words_table


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.demo", *arguments, stdout=asyncio.subprocess.PIPE
    )


async def test_words_option_prints_the_word_table() -> None:
    """--words prints the table, says when a function is called without words, and leaves."""
    output, _ = await (await start("--words")).communicate()
    assert output.decode() == f"{format_words_table()}\n{NOTE}"


async def test_demo_serves_until_sigterm() -> None:
    """It says where it listens, answers there, and leaves in peace on SIGTERM."""
    process = await start("--port", "0")
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
    base_url = line.removeprefix("demo model on ").strip()
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/models") as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 120) == 0
