"""Chat completions as a model's API: the body goes on as it is, but for quirks and fields of other APIs."""

from typing import Final

from gateway.contracts.exchange import Emit
from gateway.contracts.model_apis import API_PATHS
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import Quirks, adapt_request, find_quirk
from gateway.model.adaptation.tool_names import restore_tool_names
from gateway.model.apis.chat import answer
from gateway.model.apis.chat.foreign_fields import drop_foreign_fields, list_foreign_fields
from gateway.model.apis.model_api import ModelApi
from gateway.model.apis.openai_form import OpenAiForm
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import ModelAccess


class ChatApi(OpenAiForm):
    """See `ModelApi`."""

    path = API_PATHS["chat"]
    answers = "a stream of chat completion chunks (text/event-stream)"

    def build_body(self, body: Json, quirks: Quirks, access: ModelAccess) -> Json:
        """Return the body: a stream with usage, without what the model's quirks name."""
        del access
        return adapt_request(drop_foreign_fields(body), quirks)

    def find_quirk(self, quirks: Quirks, body: Json, *, status: int, refusal: bytes) -> Quirks | None:
        """Return the quirks to try after this error answer, or None."""
        return find_quirk(quirks, drop_foreign_fields(body), status=status, refusal=refusal)

    def list_lost(self, body: Json) -> list[str]:
        """Return the fields of other APIs: quirks are listed by themselves."""
        return list_foreign_fields(body)

    def wrap_emit(self, emit: Emit, body: Json, quirks: Quirks) -> Emit:
        """Return an emitter that gives tools their own names again, if the model got others."""
        return restore_tool_names(emit, body) if "plain_tool_names" in quirks else emit

    async def emit_stream(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit the chunks of a stream. Raises GatewayError if it breaks off."""
        await answer.emit_stream(call, target, emit)

    async def emit_whole(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit a chat completion as a chunk. Raises GatewayError if it is something else."""
        await answer.emit_whole(call, target, emit)


CHAT: Final[ModelApi] = ChatApi()
