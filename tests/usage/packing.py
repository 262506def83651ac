"""Long answers of gzip that are quickly made: they grow as many times as a test wants."""

import zlib
from dataclasses import dataclass

from usage.shapes import CHAT, text

#: The tokens that such an answer says.
TOLD = {"prompt_tokens": 1000, "completion_tokens": 300}


@dataclass(frozen=True)
class Packed:
    """An answer as it is sent, and the length of what it decodes to."""

    body: bytes
    length: int


def packed(block: bytes, blocks: int, begin: bytes = b"", end: bytes = b"") -> Packed:
    """One member of gzip with the same block many times."""
    coder, checksum, length = zlib.compressobj(wbits=-15), 0, 0
    body = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"]
    for part, times in ((begin, 1), (block, blocks), (end, 1)):
        body += [coder.compress(part) + coder.flush(zlib.Z_FULL_FLUSH)] * times  # it says nothing of what is before it
        length += len(part) * times
        for _ in range(times):
            checksum = zlib.crc32(part, checksum)
    trailer = checksum.to_bytes(4, "little") + (length % (1 << 32)).to_bytes(4, "little")
    return Packed(b"".join([*body, coder.flush(), trailer]), length)


def packed_chat(block: bytes, blocks: int) -> Packed:
    """A chat completion whose text is such a block many times, before its usage."""
    begin, end = text({**CHAT, "choices": [{"message": {"content": "@"}}], "usage": TOLD}).split(b"@")
    return packed(block, blocks, begin, end)
