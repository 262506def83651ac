"""The APIs that models speak, by their names in the configuration."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.contracts.model_apis import ApiName
from gateway.model.apis.chat.api import CHAT
from gateway.model.apis.messages.api import MESSAGES
from gateway.model.apis.model_api import ModelApi
from gateway.model.apis.responses.api import RESPONSES
from gateway.upstream.endpoint import Endpoint

_APIS: Final[Mapping[ApiName, ModelApi]] = MappingProxyType(
    {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
)


def get_model_api(endpoint: Endpoint) -> ModelApi:
    """Return the API that the models of an endpoint speak."""
    return _APIS[endpoint.models.api]
