"""Uploads over a real socket."""

import hashlib
import tracemalloc
from collections.abc import AsyncIterator

import aiohttp
import pytest

PATH = "/v1/files"
BLOCK = bytes(range(256)) * 4096
BLOCKS = 24


async def blocks() -> AsyncIterator[bytes]:
    for _ in range(BLOCKS):
        yield BLOCK


def form_of(content: bytes | AsyncIterator[bytes], *, name: str = "file") -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("purpose", "batch")
    form.add_field("other", "ignored")
    form.add_field(name, content, filename="data.bin")
    return form


@pytest.mark.parametrize("content", [b"", b"hello", b"\r\n--" * 100_000])
async def test_upload_answer_has_size_and_sha256(client: aiohttp.ClientSession, content: bytes) -> None:
    """The answer tells the size and the SHA-256 of what arrived."""
    async with client.post(PATH, data=form_of(content)) as response:
        file = await response.json()
    assert (file["object"], file["filename"], file["purpose"]) == ("file", "data.bin", "batch")
    assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


async def test_large_upload_is_hashed_without_buffering(client: aiohttp.ClientSession) -> None:
    """An upload is hashed as it arrives: memory stays far below its size."""
    tracemalloc.start()
    try:
        async with client.post(PATH, data=form_of(blocks())) as response:
            file = await response.json()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (file["bytes"], file["sha256"]) == (BLOCKS * len(BLOCK), hashlib.sha256(BLOCK * BLOCKS).hexdigest())
    assert peak_bytes < 8 * len(BLOCK)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"no boundary"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x\r\nno header\r\n\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\ncut off'),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y--\r\n--x--\r\n",
        ),
    ],
)
async def test_invalid_upload_returns_400(client: aiohttp.ClientSession, content_type: str, body: bytes) -> None:
    """What is not a form with a file is a 400."""
    async with client.post(PATH, data=body, headers={"Content-Type": content_type}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "file")
