"""The styles of model requests: a stream with usage, a plain stream, or no stream; and the name of the limit of tokens.

The configuration sets the style of streams (`upstreams[].stream`), or it is learnt. An upstream that refuses a field of
streams is called again without it. One that knows `max_tokens` by its newer name only, as OpenAI does for some models,
is called again with that. What helped is done from then on.
"""

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

from gateway.contracts.store import Json

#: usage: `stream` and `stream_options`; plain: `stream` alone; never: neither.
Streams: TypeAlias = Literal["usage", "plain", "never"]
#: What an upstream refuses a field with that it does not know, or cannot do.
REFUSALS: Final = frozenset((HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_IMPLEMENTED))
#: So many models are remembered; clients can name any.
MODELS: Final = 256
_OPTIONS = re.compile(rb"stream_options|include_usage", re.IGNORECASE)
_STREAM = rb"(?<![a-z])stream"
_CANNOT = (
    rb"(?:not|n't|no longer|cannot) (?:\w+ ){0,2}(?:support|implement|allow|permit|available|enabled|possible|accept)"
    rb"|unsupported|unknown|unrecogni[sz]ed|unexpected|unavailable|disabled|must be false|no such|extra (?:input|field)"
    rb"|(?:invalid|bad) (?:value|parameter|field|argument|option)"
)
#: Says of streams that there are none: names the field, or has the refusal in the same sentence.
_NO_STREAM = re.compile(
    rb'"param"\s*:\s*"stream(?:_options)?"'
    rb"|(?:cannot|can not|can't) (?:be )?%(stream)b"
    rb"|%(stream)b[^.\n]{0,80}?(?:%(cannot)b)"
    rb"|(?:%(cannot)b)[^.\n]{0,80}?%(stream)b" % {b"stream": _STREAM, b"cannot": _CANNOT},
    re.IGNORECASE,
)
_NAMES_STREAMS = re.compile(_STREAM, re.IGNORECASE)
_OLD_LIMIT, _LIMIT = "max_tokens", "max_completion_tokens"


@dataclass(frozen=True, slots=True)
class Style:
    """A style of requests. `new_limit`: the limit of tokens has its newer name, `max_completion_tokens`."""

    streams: Streams = "usage"
    new_limit: bool = False


class Styles:
    """The styles that were learnt, by upstream and model."""

    def __init__(self) -> None:
        self._learnt: dict[tuple[str, str], Style] = {}

    def of(self, upstream: str, model: str, *, configured: Streams) -> Style:
        """Return the request style for this model."""
        return self._learnt.get((upstream, model)) or Style(configured)

    def learn(self, upstream: str, model: str, style: Style) -> None:
        """Store a style that worked where the one before was refused."""
        self._learnt.pop((upstream, model), None)
        self._learnt[upstream, model] = style
        if len(self._learnt) > MODELS:
            del self._learnt[next(iter(self._learnt))]


def without(style: Style, *, status: int, refusal: bytes) -> Style | None:
    """Return the style to try after this error answer, or None if the error is about something else."""
    if status not in REFUSALS:
        return None
    if not style.new_limit and _LIMIT.encode() in refusal and _OLD_LIMIT.encode() in refusal:
        return replace(style, new_limit=True)
    if style.streams == "never":
        return None
    if style.streams == "usage" and _OPTIONS.search(refusal):
        return replace(style, streams="plain")
    says_so = _NAMES_STREAMS if status == HTTPStatus.NOT_IMPLEMENTED else _NO_STREAM
    return replace(style, streams="never") if says_so.search(refusal) else None


def completed_request(body: Json, style: Style) -> Json:
    """Return the request body for this style."""
    if style.new_limit and _OLD_LIMIT in body:
        body = {_LIMIT if key == _OLD_LIMIT else key: value for key, value in body.items() if key != _LIMIT}
    match style.streams:
        case "usage":
            return {**body, "stream": True, "stream_options": {"include_usage": True}}
        case "plain":
            further: Json = {"stream": True}
        case "never":
            further = {"stream": False}
    return {**{key: value for key, value in body.items() if key != "stream_options"}, **further}
