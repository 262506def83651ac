"""Messages as a model's API (`upstreams[].api: messages`)."""

import re
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from gateway.contracts.exchange import Emit
from gateway.contracts.model_apis import API_PATHS, KEY_HEADERS
from gateway.contracts.quirks import NO_SAMPLING, NO_SYSTEM_ROLE, OTHER_THINKING
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import Quirks
from gateway.model.adaptation.tool_names import restore_plain_names
from gateway.model.apis.messages import answer
from gateway.model.apis.messages.header_lines import build_header_lines, speaks_messages
from gateway.model.apis.messages.listing import convert_models
from gateway.model.apis.messages.request import (
    build_messages_body,
    drop_sampling,
    has_later_instructions,
    list_lost_fields,
)
from gateway.model.apis.messages.thinking import wants_effort
from gateway.model.apis.model_api import ModelApi
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint, ModelAccess

_BEARER: Final = b"bearer "
#: A refusal of what chooses among words.
_SAMPLING: Final = re.compile(rb"temperature|top_p|top_k")
#: A refusal of turns of the system, also by servers that know two roles.
_SYSTEM_ROLE: Final = re.compile(rb"role[^\n]{0,40}system|system[^\n]{0,40}role|'user' or 'assistant'")
#: A refusal of the kind of thinking.
_THINKING: Final = re.compile(rb"adaptive|budget_tokens|effort|thinking\.type")


class MessagesApi:
    """See `ModelApi`."""

    path = API_PATHS["messages"]
    answers = "a stream of the events of Messages (text/event-stream)"
    models_path = b"/models?limit=1000"

    def build_body(self, body: Json, quirks: Quirks, access: ModelAccess) -> Json:
        """Return the body of a streamed request."""
        if OTHER_THINKING in quirks:
            access = replace(access, thinking="budget" if access.thinking == "adaptive" else "adaptive")
        body = drop_sampling(body) if NO_SAMPLING in quirks else body
        return build_messages_body(body, access, system_turns=NO_SYSTEM_ROLE not in quirks)

    def find_quirk(self, quirks: Quirks, body: Json, *, status: int, refusal: bytes) -> Quirks | None:
        """Return the quirks to try after this error answer, or None.

        Newer models take no temperature, and older ones no turns of the system and another kind of thinking.
        """
        if status != HTTPStatus.BAD_REQUEST:
            return None
        if NO_SAMPLING not in quirks and _SAMPLING.search(refusal) and drop_sampling(body) is not body:
            return quirks | {NO_SAMPLING}
        if OTHER_THINKING not in quirks and _THINKING.search(refusal) and wants_effort(body):
            return quirks | {OTHER_THINKING}
        if NO_SYSTEM_ROLE not in quirks and _SYSTEM_ROLE.search(refusal) and has_later_instructions(body):
            return quirks | {NO_SYSTEM_ROLE}
        return None

    def list_lost(self, body: Json) -> list[str]:
        """Return what the model does not get."""
        return list_lost_fields(body)

    def build_lines(self, lines: bytes, access: ModelAccess) -> bytes:
        """Return the client's lines with the version and the betas."""
        return build_header_lines(lines, access)

    def select_credential(self, clients: bytes, endpoint: Endpoint, *, header: bytes, lines: bytes) -> bytes:
        """Return the upstream's own key in `auth_header`, else in `x-api-key`, else the client's.

        A client that speaks this API itself knows where its credential goes. Others send a bearer.
        """
        del header
        if endpoint.api_key is not None:
            return endpoint.build_credential_line(KEY_HEADERS["messages"])
        name, _, value = clients.strip().partition(b":")
        is_bearer = name.lower() == b"authorization" and value.strip().lower().startswith(_BEARER)
        if not is_bearer or speaks_messages(lines):
            return clients
        return b"X-Api-Key: %b\r\n" % value.strip()[len(_BEARER) :].strip()

    def wrap_emit(self, emit: Emit, body: Json, quirks: Quirks) -> Emit:
        """Return an emitter that gives tools their own names again, if the model got others."""
        del quirks
        return restore_plain_names(emit, body)

    async def emit_stream(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit the chunks of a stream. Raises GatewayError if it breaks off."""
        await answer.emit_stream(call, target, emit)

    async def emit_whole(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit a message as a chunk. Raises GatewayError if it is something else."""
        await answer.emit_whole(call, target, emit)

    def convert_models(self, content: bytes) -> bytes:
        """Return the list of models in OpenAI's form."""
        return convert_models(content)


MESSAGES: Final[ModelApi] = MessagesApi()
