"""Decoders of Brotli and Zstandard, whose libraries come with the extra `codings`. Import it where an answer has one.

Each has the methods of a decompressor of zlib, and raises what that raises. It keeps what it has not decoded itself.
"""

import sys
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final


def _import_optional(name: str) -> Any:
    """Return a module that may be missing; None: it is."""
    try:
        return import_module(name)
    except ImportError:
        return None


brotli: Final = _import_optional("brotli")
zstd: Final = _import_optional("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
#: The largest window that an answer in Zstandard may ask for: 8 MiB (RFC 9659).
WINDOW_LOG: Final = 23
#: How answers in Brotli begin that ask for more than 4 MiB, by their first four bits (RFC 7932 section 9.1). The
#: library fills a whole window in one step, whatever that may return: one of 16 MiB takes it 20 ms and more.
_WIDE: Final = (0b1101, 0b1111)


class _Brotli:
    unconsumed_tail = unused_data = b""

    def __init__(self) -> None:
        self._decoder: Any = brotli.Decompressor()
        self._has_begun = False

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        """Decode data to about `max_length` bytes. Raises zlib.error, also for a too large window."""
        if data and not self._has_begun:
            self._has_begun = True
            if data[0] & 15 in _WIDE:
                raise zlib.error("its window is too large")
        try:
            return bytes(self._decoder.process(data, output_buffer_limit=max_length))
        except brotli.error as error:
            raise zlib.error(str(error)) from None


class _Zstandard:
    unconsumed_tail = b""

    def __init__(self) -> None:
        self._decoder: Any = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})

    @property
    def eof(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decoder.unused_data)

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        """Decode data to at most `max_length` bytes. Raises zlib.error."""
        try:
            return bytes(self._decoder.decompress(data, max_length))
        except zstd.ZstdError as error:
            raise zlib.error(str(error)) from None


def get_brotli_factory() -> Callable[[], _Brotli] | None:
    """Return what makes decoders of Brotli; None: its library is missing."""
    return None if brotli is None else _Brotli


def get_zstandard_factory() -> Callable[[], _Zstandard] | None:
    """Return what makes decoders of Zstandard; None: its library is missing."""
    return None if zstd is None else _Zstandard
