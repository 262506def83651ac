"""The APIs by which the context lane asks models, by the names that `upstreams[].api` takes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

ApiName: TypeAlias = Literal["chat", "messages", "responses"]
MODEL_APIS: Final[tuple[ApiName, ...]] = get_args(ApiName)
#: Where models are asked, below the base URL.
API_PATHS: Final[Mapping[ApiName, bytes]] = MappingProxyType(
    {"chat": b"/chat/completions", "messages": b"/messages", "responses": b"/responses"}
)
#: The header that carries a key where neither the configuration nor a client names one.
KEY_HEADERS: Final[Mapping[ApiName, bytes]] = MappingProxyType(
    {"chat": b"authorization", "messages": b"x-api-key", "responses": b"authorization"}
)
#: The header lines of every request.
API_LINES: Final[Mapping[ApiName, bytes]] = MappingProxyType(
    {"chat": b"", "messages": b"Anthropic-Version: 2023-06-01\r\n", "responses": b""}
)
