"""The usage in a short answer as most upstreams write it, read by a typed decoder: it makes only the values that count.

What the decoder refuses, and what says its tokens by other names, is for `of_whole`. That says the same of all that is
read here, but of what it cannot read: an answer with a number that no double holds, or one that is nested deeper than a
thousand times. Import this module only where answers are read, for it loads the decoder's library.
"""

from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway.usage.answers import name_of
from gateway.usage.tokens import MOST

#: The numbers of `Tokens` in their order, and the model, as the first two of `Said`.
Read: TypeAlias = tuple[tuple[int, int, int, int, int], str]
_Count = Annotated[int, Meta(ge=0, lt=MOST)]


class _Asked(Struct, gc=False):
    cached_tokens: _Count | None = None


class _Answered(Struct, gc=False):
    reasoning_tokens: _Count | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Asked | None = None
    completion_tokens_details: _Answered | None = None
    prompt_cache_hit_tokens: _Count | None = None


class _Answer(Struct, gc=False):
    usage: _Usage | None = None
    model: str | None = None


_decode: Final = Decoder(_Answer).decode
_name_of: Final = lru_cache(name_of)


def read_usual(body: bytes) -> Read | None:
    """Return what an answer says of itself; None: it is not the usual one."""
    try:
        if not body.isascii():
            body.decode()  # the decoder does not look into texts that it leaves out
        answer = _decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    usage = answer.usage
    if usage is None or (asked := usage.prompt_tokens) is None:
        return None
    answered, reasoning = usage.completion_tokens or 0, 0
    if (told := usage.completion_tokens_details) is not None and (reasoning := told.reasoning_tokens or 0) > answered:
        reasoning = answered
    cached = None if (details := usage.prompt_tokens_details) is None else details.cached_tokens
    if cached is None:
        cached = usage.prompt_cache_hit_tokens or 0
    if cached > asked:
        cached = asked
    return (asked, cached, 0, answered, reasoning), _name_of(answer.model or "")
