"""The API that an upstream speaks, as the call of a model uses it.

An exchange has a chat completion request, and its answer comes as chunks of chat completions, whatever the API. What
chat completions lack travels in fields that routers of models made common: `reasoning_details`, `cache_control`,
`native_finish_reason`. docs/upstreams.md lists them.
"""

from typing import Protocol

from gateway.contracts.exchange import Emit
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import Quirks
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint, ModelAccess


class ModelApi(Protocol):
    """One API that models speak: its requests, and its answers.

    `path` is where models are asked, below the base URL, and `models_path` where they are listed. `answers` are its
    answers in words, for an error about others.
    """

    @property
    def path(self) -> bytes: ...
    @property
    def answers(self) -> str: ...
    @property
    def models_path(self) -> bytes: ...

    def build_body(self, body: Json, quirks: Quirks, access: ModelAccess) -> Json:
        """Return the body of a request in this API. `body` is the exchange's, with the model's name at the upstream."""
        ...

    def find_quirk(self, quirks: Quirks, body: Json, *, status: int, refusal: bytes) -> Quirks | None:
        """Return the quirks to try after this error answer, or None if it is about something else."""
        ...

    def list_lost(self, body: Json) -> list[str]:
        """Return what of the exchange's body the model does not get as it came, for people."""
        ...

    def build_lines(self, lines: bytes, access: ModelAccess) -> bytes:
        """Return the header lines of a request. `lines` are the client's that go on."""
        ...

    def select_credential(self, clients: bytes, endpoint: Endpoint, *, header: bytes, lines: bytes) -> bytes:
        """Return the line with the upstream's own key, else those of the client's credential.

        `header` is where the client put that, in lower case, and `lines` are the client's others.
        """
        ...

    def wrap_emit(self, emit: Emit, body: Json, quirks: Quirks) -> Emit:
        """Return an emitter for the answer to a request that `build_body` made of `body`."""
        ...

    async def emit_stream(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit the chunks of a streamed answer. Raises GatewayError if it breaks off."""
        ...

    async def emit_whole(self, call: UpstreamCall, target: Target, emit: Emit) -> None:
        """Emit an answer of one JSON object as a chunk. Raises GatewayError if it is something else."""
        ...

    def convert_models(self, content: bytes) -> bytes:
        """Return a list of models in OpenAI's form. What is no list stays as it is."""
        ...
