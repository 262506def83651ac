"""Responses as a model's API (`upstreams[].api: responses`)."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from gateway.contracts.exchange import Emit
from gateway.contracts.model_apis import API_PATHS
from gateway.contracts.quirks import NO_SAMPLING, QuirkName
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import Quirks
from gateway.model.adaptation.tool_names import restore_plain_names
from gateway.model.apis.model_api import ModelApi
from gateway.model.apis.openai_form import OpenAiForm
from gateway.model.apis.responses.request import build_responses_body, list_lost_fields, wants_reasoning
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import ModelAccess

_REFUSED: Final = frozenset((HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY))
#: The refusals of models that can do less, by the quirk that takes out what they refuse; in the order of trial.
_REFUSALS: Final[Mapping[QuirkName, re.Pattern[bytes]]] = MappingProxyType(
    {
        NO_SAMPLING: re.compile(rb"temperature|top_p"),
        "no_parallel_tool_calls": re.compile(rb"parallel_tool_calls"),
        "no_reasoning": re.compile(
            rb"(?i)encrypted[_ ]content[^\n]{0,40}(?:not (?:supported|permitted|allowed)|unsupported)"
            rb'|"param"\s*:\s*"include"'
        ),
        "no_reasoning_effort": re.compile(
            rb"(?i)(?:unsupported|unknown|unrecogni[sz]ed|extra) [^\n]{0,30}\breasoning\b"
            rb"|\breasoning[._ ](?:effort|summary)[^\n]{0,60}(?:not (?:supported|permitted|allowed)|unsupported)"
        ),
    }
)
#: Whether a request has what the quirk takes out.
_CONCERNS: Final[Mapping[QuirkName, Callable[[Json], bool]]] = MappingProxyType(
    {
        NO_SAMPLING: lambda body: body.get("temperature") is not None or body.get("top_p") is not None,
        "no_parallel_tool_calls": lambda body: body.get("parallel_tool_calls") is not None,
        "no_reasoning": lambda _: True,
        "no_reasoning_effort": wants_reasoning,
    }
)


class ResponsesApi(OpenAiForm):
    """See `ModelApi`."""

    path = API_PATHS["responses"]
    answers = "a stream of the events of Responses (text/event-stream)"

    def build_body(self, body: Json, quirks: Quirks, access: ModelAccess) -> Json:
        """Return the body of a streamed request."""
        return build_responses_body(body, quirks, access)

    def find_quirk(self, quirks: Quirks, body: Json, *, status: int, refusal: bytes) -> Quirks | None:
        """Return the quirks to try after this error answer, or None."""
        if status not in _REFUSED:
            return None
        for name, pattern in _REFUSALS.items():
            if name not in quirks and pattern.search(refusal) and _CONCERNS[name](body):
                return quirks | {name}
        return None

    def list_lost(self, body: Json) -> list[str]:
        """Return what the model does not get."""
        return list_lost_fields(body)

    def wrap_emit(self, emit: Emit, body: Json, quirks: Quirks) -> Emit:
        """Return an emitter that gives tools their own names again, if the model got others."""
        del quirks
        return restore_plain_names(emit, body)

    async def emit_stream(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit the chunks of a stream. Raises GatewayError if it breaks off."""
        # Imported here: it loads msgspec, which a gateway without such an upstream may not need.
        from gateway.model.apis.responses import answer

        await answer.emit_stream(call, target, emit)

    async def emit_whole(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit a response as a chunk. Raises GatewayError if it is something else."""
        from gateway.model.apis.responses import answer

        await answer.emit_whole(call, target, emit)


RESPONSES: Final[ModelApi] = ResponsesApi()
