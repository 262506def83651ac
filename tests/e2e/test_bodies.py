"""Request bodies in pieces and with a Content-Encoding, as some HTTP clients send them."""

import gzip
import json
import zlib
from pathlib import Path

import pytest
from functional.through import ask, error_of, post, post_chunked

from tests.measuring import Effort

from .models import Json, calls, says
from .talking import CHAT, Completed, World, desk, talking

ASKED: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi " * 1000}]}
PLAIN = json.dumps(ASKED).encode()


async def packed(world: World, body: bytes, coding: str = "gzip", path: str = CHAT) -> Completed:
    return await world.post(body, path=path, headers={"Content-Encoding": coding})


async def test_chunked_request_is_forwarded_with_content_length() -> None:
    """Its framing ends at the gateway: the model's server gets a length and nothing else."""
    async with talking(says("Hello.")) as world:
        framed = b"%x\r\n%b\r\n0\r\nX-Checked: 1\r\n\r\n" % (len(PLAIN), PLAIN)
        lines = (b"Content-Type: application/json", b"Trailer: X-Checked", b"Content-Language: en")
        request = post_chunked(framed, CHAT.encode(), *lines).replace(b"gw.example", b"localhost")
        answer = await ask(world.gateway, request)
        assert json.loads(answer.payload)["choices"][0]["message"]["content"] == "Hello."
        (seen,) = world.model.upstream.requests
        for name in (b"transfer-encoding", b"trailer", b"content-language"):
            assert not seen.list_values(name)
        assert seen.list_values(b"content-length") == [b"%d" % len(seen.payload)]


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip", "identity, gzip"])
async def test_gzip_request_is_unpacked_for_the_model(coding: str) -> None:
    """The model gets what was in it, with no word of its coding."""
    async with talking(says("Hello."), says("Hello.")) as world:
        answer = await packed(world, gzip.compress(PLAIN), coding)
        assert answer.text == "Hello."
        (request,) = world.model.upstream.requests
        assert not request.list_values(b"content-encoding")
        assert json.loads(request.payload)["messages"][-1] == ASKED["messages"][-1]


async def test_gzip_request_is_accepted_by_gateway_endpoints() -> None:
    """Each of them reads its body the same way."""
    async with talking() as world:
        assert (await packed(world, gzip.compress(PLAIN), path="/context/explain")).json["lane"] == "context"
        body = gzip.compress(json.dumps({"text": "Be terse."}).encode())
        put = await world.post(
            body, path="/v1/system-prompts/terse", method="PUT", headers={"Content-Encoding": "gzip"}
        )
        assert (put.status, put.json["text"]) == (200, "Be terse.")


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_gzip_request_is_accepted_in_chunks(size: int) -> None:
    """Cut anywhere, and without a length."""
    content = gzip.compress(PLAIN)
    chunks = [content[i : i + size] for i in range(0, len(content), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    async with talking(says("Hello.")) as world:
        request = post_chunked(framed, CHAT.encode(), b"Content-Type: application/json", b"Content-Encoding: gzip")
        answer = await ask(world.gateway, request.replace(b"gw.example", b"localhost"))
        assert json.loads(answer.payload)["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "gzip, br", "nothing"])
async def test_unsupported_content_encoding_returns_415(coding: str) -> None:
    """With those that are read; the key comes first."""
    async with talking() as world:
        answer = await packed(world, PLAIN, coding)
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
        assert answer.error["param"] == "content-encoding" and "gzip" in answer.error["message"]
        assert answer.headers["Accept-Encoding"] == "gzip, identity"
        assert not world.model.asked


@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        b"",
        gzip.compress(PLAIN)[:-1],
        gzip.compress(PLAIN)[:-9] + b"\0" * 9,
        gzip.compress(PLAIN) + b"more",
        gzip.compress(PLAIN) * 2,
        zlib.compress(PLAIN),
    ],
    ids=["plain", "empty", "cut", "checksum", "more behind it", "twice", "zlib"],
)
async def test_invalid_gzip_body_is_rejected_with_invalid_header(body: bytes) -> None:
    """Cut, changed, longer, or no gzip at all: one reading, or none."""
    async with talking() as world:
        answer = await packed(world, body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_header")
        assert answer.error["param"] == "content-encoding"
        assert not world.model.asked


async def test_repeated_content_encoding_header_returns_415() -> None:
    """Counts as both."""
    async with talking() as world:
        lines = (b"Content-Encoding: gzip", b"Content-Encoding: gzip", b"Content-Type: application/json")
        request = post(gzip.compress(gzip.compress(PLAIN)), CHAT.encode(), *lines)
        answer = await ask(world.gateway, request.replace(b"gw.example", b"localhost"))
        assert (answer.status, error_of(answer)["code"]) == (415, "unsupported_media_type")


def bomb_of(megabytes: int) -> bytes:
    """Zeros packed by gzip, as far as the end: a block that says nothing of those before it, many times."""
    packing = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = packing.compress(bytes(1 << 20)) + packing.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + block * megabytes


async def test_body_limit_counts_unpacked_bytes_and_stops_unpacking() -> None:
    """To the byte, and no further: a bomb costs no more than a body of the limit's size."""
    limit = 1 << 20
    async with talking(says("Hello."), limits={"context_body": limit}) as world:
        fitting = PLAIN + b" " * (limit - len(PLAIN))
        assert (await packed(world, gzip.compress(fitting))).text == "Hello."
        over = await packed(world, gzip.compress(fitting + b" "))
        assert (over.status, over.error["code"]) == (413, "request_too_large")
        assert "limits.context_body" in over.error["message"]
        bomb = bomb_of(512)
        assert len(bomb) < limit
        effort = Effort()
        assert (await packed(world, bomb)).status == 413
        assert effort.cpu_s < 0.1  # all of it takes a second


async def test_gzip_body_of_empty_blocks_is_limited() -> None:
    """Empty blocks unpack to no byte, however many come."""
    limit, block = 1 << 16, b"\0\0\0\xff\xff" * 1000
    begin = gzip.compress(b"")[:10]
    async with talking(says("Hello."), limits={"context_body": limit}) as world:
        rest = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        last = rest.compress(PLAIN) + rest.flush()
        end = zlib.crc32(PLAIN).to_bytes(4, "little") + len(PLAIN).to_bytes(4, "little")
        assert (await packed(world, begin + block + last + end)).text == "Hello."
        over = await packed(world, begin + block * 100 + last + end)
        assert (over.status, over.error["code"]) == (413, "request_too_large") and len(world.model.asked) == 1


async def test_gzip_repetition_of_a_request_returns_the_same_answer(tmp_path: Path) -> None:
    """Is the same as the plain one: what it says counts."""
    call = calls("file_operations", operation="read", path="notes.txt")
    async with talking(call, says("Hello."), tools=desk(tmp_path)) as world:
        key = {"Idempotency-Key": "k"}
        plain = await world.post(PLAIN, headers=key)
        again = await world.post(gzip.compress(PLAIN), headers={**key, "Content-Encoding": "gzip"})
        assert plain.text == again.text and "Hello." in plain.text
        assert len(world.model.asked) == 2


async def test_gzip_body_on_a_passthrough_route_is_forwarded_unread() -> None:
    """Is none of our business."""
    async with talking(says("x")) as world:
        request = post(b"\x1f\x8bjunk", b"/context/v1/embeddings", b"Content-Encoding: gzip")
        await ask(world.gateway, request.replace(b"gw.example", b"localhost"))
        (seen,) = world.model.upstream.requests
        assert (seen.payload, seen.list_values(b"content-encoding")) == (b"\x1f\x8bjunk", [b"gzip"])
