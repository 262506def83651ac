"""Decoders of Brotli and Zstandard: a bounded step each time, and the errors of zlib."""

import random
import zlib
from collections.abc import Callable

import brotli
import pytest

from gateway.usage.codings import WINDOW_LOG, get_brotli_factory, get_zstandard_factory, zstd
from gateway.usage.decompression import STEP_BYTES, Decoder

LONG = bytes(random.Random(7).choices(b"abcdefgh ", k=1 << 20))


def new(name: str) -> Decoder:
    made = get_brotli_factory() if name == "br" else get_zstandard_factory()
    assert made is not None
    return made()


CODERS: dict[str, Callable[[bytes], bytes]] = {"br": brotli.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("name", CODERS)
@pytest.mark.parametrize("body", [LONG, b"\0" * (32 << 20)], ids=["text", "bomb"])
def test_decoder_step_is_bounded_and_decodes_all_bytes(name: str, body: bytes) -> None:
    """However much an answer grows: what is not decoded waits in the decoder."""
    decoder, found, largest = new(name), 0, 0
    packed = CODERS[name](body)
    for start in range(0, len(packed), 4096):
        part = packed[start : start + 4096]
        while not decoder.eof:
            step = decoder.decompress(part, STEP_BYTES)
            part, found, largest = b"", found + len(step), max(largest, len(step))
            if len(step) < STEP_BYTES:
                break
    assert decoder.eof and found == len(body)
    assert largest <= 3 * STEP_BYTES


@pytest.mark.parametrize("name", CODERS)
def test_decoder_raises_zlib_error_for_invalid_data(name: str) -> None:
    with pytest.raises(zlib.error):
        new(name).decompress(b"\xffno such thing" * 100, STEP_BYTES)


def test_zstd_decoder_reports_trailing_bytes_as_unused_data() -> None:
    decoder = new("zstd")
    assert decoder.decompress(zstd.compress(b"one") + b"behind", STEP_BYTES) == b"one"
    assert decoder.eof and decoder.unused_data == b"behind"


def test_zstd_window_over_8_mib_is_refused() -> None:
    """RFC 9659: 8 MiB."""
    options = {zstd.CompressionParameter.window_log: WINDOW_LOG + 1}
    coder = zstd.ZstdCompressor(options=options)
    with pytest.raises(zlib.error):
        new("zstd").decompress(coder.compress(b"x") + coder.flush(), STEP_BYTES)


@pytest.mark.parametrize("window", range(10, 25))
def test_brotli_window_over_4_mib_is_refused(window: int) -> None:
    """Brotli decodes into all of it at one go. Servers use 4 MiB at most."""
    decoder, body = new("br"), brotli.compress(LONG, quality=1, lgwin=window)
    if window <= 22:
        assert decoder.decompress(body[:1], STEP_BYTES) == b""
        assert LONG.startswith(decoder.decompress(body[1:], STEP_BYTES))
    else:
        with pytest.raises(zlib.error, match="window"):
            decoder.decompress(body, STEP_BYTES)
