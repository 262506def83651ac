"""Tokens of one answer, from the usage object that an upstream writes, whatever its API calls them.

OpenAI counts cached tokens within the input. Anthropic counts them beside it, read from its cache or written to it.
Here all of them are input, and `cached` and `written` are parts of it, as `reasoning` is a part of the output.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

#: No upstream counts so many in one answer.
MOST: Final = 1 << 31
#: UTF-8 bytes of a token, where an upstream does not state its tokens.
BYTES_A_TOKEN: Final = 4
_WRONG: Final = -1


class TokenCounts(NamedTuple):
    """The tokens of one answer. `written`: the part of the input that an upstream bills for writing its cache.

    `written_1h` are the part of them that it keeps for an hour. `audio_input` and `audio_output` are parts of the
    others.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    written_1h: int = 0


class RequestUsage(NamedTuple):
    """A finished request. `rejected`: it has no answer but an error; `cut`: its answer did not come to its end.

    `estimated`: the upstream did not state its tokens, or not all of them. `asked`: the answer named no model, so the
    model is the request's, as its client wrote it. `requests`: so many that became the same; the tokens are the sum of
    all.
    """

    tokens: TokenCounts = TokenCounts()
    rejected: bool = False
    cut: bool = False
    estimated: bool = False
    asked: bool = False
    requests: int = 1


class Times(NamedTuple):
    """The times of answers of one model, in seconds, each from the request sent: to its first byte, and to its end.

    `token_s`: the time of each token behind the first byte, of streamed answers.
    """

    first_byte_s: Sequence[float]
    duration_s: Sequence[float]
    token_s: Sequence[float] = ()


def build_times(sent: float, came: float, ended: float, *, streamed_tokens: int) -> Times:
    """Return the times of an answer, of seconds of one clock. `streamed_tokens` 0: it is not a stream, or unknown."""
    token_s = ((ended - came) / (streamed_tokens - 1),) if streamed_tokens > 1 else ()
    return Times((came - sent,), (ended - sent,), token_s)


#: Records finished requests: their usage, key, tenant, model, upstream and lane, and the times of what a model answered
#: (`gateway.usage.ledger.Ledger`).
Recorded: TypeAlias = Callable[[RequestUsage, str, str, str, str, str, Times | None], None]


def parse_tokens(told: object) -> TokenCounts | None:
    """Return the tokens of a usage object.

    None: it states neither the input nor the output, or one of them is not a number of tokens.
    """
    if not isinstance(told, dict):
        return None
    say = told.get
    asked, answered = _parse_count(say("prompt_tokens")), _parse_count(say("completion_tokens"))
    if asked is None and answered is None:
        return _parse_other_names(told)
    if asked == _WRONG or answered == _WRONG:
        return None
    cached = _get_part(say("prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = _clean_count(say("prompt_cache_hit_tokens"))  # DeepSeek's word
    details, made = say("prompt_tokens_details"), say("completion_tokens_details")
    found = _build_counts(asked, cached, 0, answered, _get_part(made, "reasoning_tokens"))
    if (written := say("cache_creation_input_tokens")) is not None:  # of Messages, also behind a router of models
        found = _add_written(found, _clean_count(written), told)
    return _add_audio(found, _get_part(details, "audio_tokens"), _get_part(made, "audio_tokens"))


def _parse_other_names(told: dict[str, object]) -> TokenCounts | None:
    """Return the tokens of a Response, of a message, or of what counts nothing but a total, such as a reranker."""
    asked, answered = _parse_count(told.get("input_tokens")), _parse_count(told.get("output_tokens"))
    if asked is None and answered is None:
        total = _clean_count(told.get("total_tokens"))
        return None if total is None else TokenCounts(total)
    cached = _get_part(told.get("input_tokens_details"), "cached_tokens")
    beside, written = (
        _parse_count(told.get("cache_read_input_tokens")),
        _parse_count(told.get("cache_creation_input_tokens")),
    )
    if _WRONG in (asked, answered, beside, written):
        return None
    if beside is not None or written is not None:
        cached, asked = beside, (asked or 0) + (beside or 0) + (written or 0)
    made = told.get("output_tokens_details")
    found = _build_counts(asked, cached, written, answered, _get_part(made, "reasoning_tokens"))
    found = _add_written(found, written, told)
    # Transcriptions have `input_token_details`.
    details = told.get("input_tokens_details") or told.get("input_token_details")
    return _add_audio(found, _get_part(details, "audio_tokens"), _get_part(made, "audio_tokens"))


def parse_native_tokens(told: dict[str, object]) -> TokenCounts | None:
    """Return the tokens in an answer of Gemini's or Ollama's own API; None: it states none."""
    meta = told.get("usageMetadata")
    if isinstance(meta, dict):
        names = "promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"
        asked, used, answered, thought = (_parse_count(meta.get(name)) for name in names)
        cached = _clean_count(meta.get("cachedContentTokenCount"))
    else:
        asked, answered = _parse_count(told.get("prompt_eval_count")), _parse_count(told.get("eval_count"))
        used = thought = cached = None
    counts = (asked, used, answered, thought)
    if _WRONG in counts or all(count is None for count in counts):
        return None
    return _build_counts((asked or 0) + (used or 0), cached, 0, (answered or 0) + (thought or 0), thought)


def _build_counts(
    asked: int | None, cached: int | None, written: int | None, answered: int | None, reasoning: int | None
) -> TokenCounts:
    asked, answered = asked or 0, answered or 0
    cached = min(cached, asked) if cached else 0
    return TokenCounts(asked, cached, written or 0, answered, min(reasoning, answered) if reasoning else 0)


def _add_written(tokens: TokenCounts, written: int | None, told: dict[str, object]) -> TokenCounts:
    """Return tokens of which so many were written to the cache, some of them for an hour."""
    if not written:
        return tokens
    long = _get_part(told.get("cache_creation"), "ephemeral_1h_input_tokens") or 0
    written = min(written, tokens.input)
    return tokens._replace(written=written, written_1h=min(long, written))


def _add_audio(tokens: TokenCounts, heard: int | None, spoken: int | None) -> TokenCounts:
    """Return tokens of which so many are audio: of the input, and of the output."""
    if not (heard or spoken):
        return tokens
    heard, spoken = min(heard or 0, tokens.input), min(spoken or 0, tokens.output)
    return tokens._replace(audio_input=heard, audio_output=spoken)


def _get_part(details: object, name: str) -> int | None:
    """Return a number of tokens in the details of a usage object; None: it is not stated."""
    return _clean_count(details.get(name)) if details is not None and isinstance(details, dict) else None


def _parse_count(value: object) -> int | None:
    """Return a number of tokens, or `_WRONG` for any other value; None: it is not stated."""
    if value is None:
        return None
    count = _clean_count(value)
    return _WRONG if count is None else count


def _clean_count(value: object) -> int | None:
    """Return a number of tokens. Some write it as `12.0`; a text, a bool or a negative number is none."""
    if type(value) is int:
        return value if 0 <= value < MOST else None
    if value is not None and isinstance(value, float) and value.is_integer():
        return _clean_count(int(value))
    return None
