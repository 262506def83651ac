"""The section about upstreams: where they are, what they are sent, and what happens when they fail."""

import re
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import BaseUrl, Credential, CredentialHeader, PathPrefix, parse_prefix
from gateway.config.values.scalars import ExistingFile, FilePath, Flag, Label, Name, Text, build_count_type
from gateway.config.values.units import Duration, Share, build_size_type
from gateway.config.values.value import ValueType
from gateway.contracts.model_apis import ApiName
from gateway.contracts.quirks import QuirkName
from gateway.features.limits.section import AllowanceSettings

_STATUS = re.compile(r"[45][0-9][0-9]\Z")
_BETA = re.compile(r"[0-9A-Za-z._-]{1,100}\Z")


def _parse_reason(value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or (text not in ("connect", "reset", "timeout") and not _STATUS.match(text)):
        raise ValueError("expected connect, reset, timeout, or a status from 400 to 599")
    return text


def _parse_beta(value: object) -> str:
    if not isinstance(value, str) or not _BETA.match(value):
        raise ValueError("expected letters, digits, '-', '.' and '_', such as context-1m-2025-08-07")
    return value


BetaName = Annotated[str, ValueType(kind="name of a beta", parse=_parse_beta)]
RetryReason = Annotated[str, ValueType(kind="connect, reset, timeout or status", parse=_parse_reason)]


class Tls(Section):
    verify: Flag = Field(default=True, description="Check the upstream's certificate and name.")
    ca_file: ExistingFile | None = Field(
        default=None, description="Certificates to trust, as PEM; null: those of the system."
    )
    cert_file: ExistingFile | None = Field(
        default=None, description="The gateway's certificate for the upstream, as PEM."
    )
    key_file: ExistingFile | None = Field(
        default=None, description="Private key of `cert_file`, as PEM; null: it is in `cert_file`."
    )
    server_name: Text | None = Field(
        default=None, description="Server name to send (SNI) and to verify; null: the host of `base_url`."
    )


class TimeoutsSettings(Section):
    connect: Duration = Field(default=5.0, description="Longest wait for a connection, TLS included.")
    first_byte: Duration = Field(
        default=600.0, description="Longest wait for the head of the response; interim ones (1xx) are none."
    )
    idle: Duration = Field(default=300.0, description="Longest pause within a response.")


class EndpointSettings(Section):
    url: BaseUrl = Field(description="URL of the server, as in `base_url`.")
    name: Name | None = Field(
        default=None, description="Name in metrics and logs, used once in the upstream; null: host and port of `url`."
    )
    weight: Annotated[int, build_count_type(1, 1000)] = Field(default=1, description="Share of the requests.")
    concurrent: Annotated[int, build_count_type(1, 1_000_000)] | None = Field(
        default=None, description="Most requests of a worker that it has at a time; null: no limit."
    )
    api_key: Credential | None = Field(default=None, description="Its own key; null: that of the upstream.")
    api_key_file: FilePath | None = Field(default=None, description="File that holds `api_key`.")
    models: tuple[Text, ...] = Field(
        default=(),
        description="Models that it serves, as globs; empty: all of the upstream. In passthrough only `by_model`.",
    )


class BreakerSettings(Section):
    failures: Annotated[int, build_count_type(0, 1000)] = Field(
        default=5,
        description=(
            "Failures in a row after which an endpoint gets no requests: no connection, a reset, a timeout, 502, 503, "
            "504, 529 or an answer that was cut; 404, 408, 500, and 401, 402, 403 and 429 to the gateway's own key, if "
            "another endpoint answers well. Half of the last four times as many count, too. 0: never."
        ),
    )
    open: Duration = Field(
        default=10.0,
        description="Time without requests; then one request at a time tries it. Doubled each time that one fails.",
    )
    longest: Duration = Field(default=300.0, description="Longest time without requests.")


class Health(Section):
    path: Annotated[str, ValueType(kind="path", parse=parse_prefix)] = Field(
        default="/models",
        description=(
            "Path below the endpoint's URL, requested with its key. An answer below 500 is a good one; 404, and 401, "
            "402 and 403 to the gateway's own key, are not while another endpoint answers well."
        ),
    )
    interval: Duration = Field(default=10.0, description="Time between two checks of an endpoint, in each worker.")
    timeout: Duration = Field(default=2.0, description="Longest wait for an answer.")
    fall: Annotated[int, build_count_type(1, 100)] = Field(
        default=3, description="Failed checks that take an endpoint out."
    )
    rise: Annotated[int, build_count_type(1, 100)] = Field(default=2, description="Good checks that bring it back.")


class Retry(Section):
    tries: Annotated[int, build_count_type(1, 20)] = Field(
        default=3, description="Most times that a request is sent; 1: once."
    )
    budget: Share = Field(
        default=0.2, description="Most requests that are sent again, as a part of those that clients sent."
    )
    on: tuple[RetryReason, ...] = Field(
        default=(
            *("connect", "reset", "timeout", "401", "402", "403", "404", "408", "429", "500", "502", "503", "504"),
            "529",
        ),
        description=(
            "Reasons: `connect` (no connection), `reset` (it ended before an answer), `timeout` "
            "(`timeouts.first_byte`), or a status. What may not happen twice is sent again for `connect`, 401, 402, "
            "403, 429, 503 and 529 only. 401, 402 and 403 count for the gateway's own key, 404 for requests that only "
            "compute; these, 408 and 500 go to another endpoint, never to the same one."
        ),
    )
    body: Annotated[int, build_size_type(0, 1 << 30)] = Field(
        default=1 << 20, description="Longest body that is kept to be sent again."
    )


class Queue(Section):
    size: Annotated[int, build_count_type(1, 1_000_000)] = Field(
        default=100, description="Most requests of a worker that wait; further ones get 503 at once."
    )
    wait: Duration = Field(default=5.0, description="Longest wait; then the request gets 503.")


class MessagesSettings(Section):
    max_tokens: Annotated[int, build_count_type(1, 10_000_000)] = Field(
        default=16_384, description="Longest answer in tokens where the client sets no limit: the API requires one."
    )
    thinking: Literal["adaptive", "budget"] = Field(
        default="adaptive",
        description=(
            "What `reasoning_effort` of a client becomes: `adaptive` thinking with that effort, or, for older models, "
            "a `budget` of tokens."
        ),
    )
    prompt_caching: Flag = Field(
        default=True,
        description=(
            "Whether the gateway marks tools, system prompt and the last turns for the prompt cache of the upstream, "
            "unless the client sets marks. The first request costs a little more, later ones much less."
        ),
    )
    betas: tuple[BetaName, ...] = Field(
        default=(),
        description="Values of `anthropic-beta` that every request carries, such as `context-1m-2025-08-07`.",
    )


class ResponsesSettings(Section):
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None,
        description=(
            "Summary of its reasoning that a model writes for people, where the client states none; null: none. OpenAI "
            "requires a verified organization for some models."
        ),
    )


class UpstreamSettings(Section):
    name: Name = Field(description="Name in metrics, logs and `context.upstream`; used once.")
    base_url: BaseUrl | None = Field(
        default=None,
        description=(
            "URL of the upstream, up to `/v1`. Its path replaces the matched prefix, or `/v1` if the "
            "prefix names a part of the API, such as `/v1/embeddings`. Either this or `endpoints`."
        ),
    )
    endpoints: tuple[EndpointSettings, ...] = Field(
        default=(), description="Servers that share the requests of this upstream; they replace `base_url`."
    )
    api_key: Credential | None = Field(
        default=None,
        description="The gateway's key for this upstream; null: the gateway passes on the client's own key.",
    )
    api_key_file: FilePath | None = Field(default=None, description="File that holds `api_key`.")
    auth_header: CredentialHeader | None = Field(
        default=None, description="Header that carries `api_key`; null: the one in which the client sent its own."
    )
    models: tuple[Text, ...] = Field(
        default=(),
        description="Models that it serves, as globs; they choose the upstream in the context lane, and in passthrough "
        "with `passthrough.by_model`.",
    )
    paths: tuple[PathPrefix, ...] = Field(
        default=(), description="Path prefixes that it serves; empty: those of `passthrough.paths`."
    )
    api: ApiName = Field(
        default="chat",
        description="API by which the context lane asks its models: `chat` (chat completions), `responses` (OpenAI's "
        "Responses), or `messages` (Anthropic's Messages), to whose `base_url` the gateway adds `/v1` if it does "
        "not end with a version. Passthrough changes nothing. `gateway check-config --probe` finds out "
        "what an upstream speaks.",
    )
    messages: MessagesSettings = Field(
        default_factory=MessagesSettings, description="Requests to an upstream with `api: messages`."
    )
    responses: ResponsesSettings = Field(
        default_factory=ResponsesSettings, description="Requests to an upstream with `api: responses`."
    )
    quirks: tuple[QuirkName, ...] = Field(
        default=(),
        description="What its models refuse in requests of the context lane, as far as it is known. The gateway learns "
        "the rest from refusals.",
    )
    client_ids: Flag = Field(
        default=False,
        description="Whether its models get the headers of the context lane's clients that name a person, a program, a "
        "machine or a session. docs/security.md lists them.",
    )
    provider: Label = Field(
        default="openai",
        description="Name of the provider in traces, such as `anthropic`, `azure.ai.openai` or `mistral_ai` "
        "(`gen_ai.provider.name`). With `api: messages` it is `anthropic` unless set.",
    )
    timeouts: TimeoutsSettings = Field(default_factory=TimeoutsSettings, description="Longest waits for this upstream.")
    tls: Tls = Field(default_factory=Tls, description="TLS with this upstream.")
    balance: Literal["weighted", "least_loaded", "sticky"] = Field(
        default="weighted",
        description=(
            "Endpoint of a request: the next one by `weight`; the one with the fewest requests for its weight; "
            "or the same one for all requests of a conversation (`X-Context-Conversation`), else of a key, so that "
            "its prompt cache is warm."
        ),
    )
    breaker: BreakerSettings | None = Field(
        default=None,
        description=(
            "When an endpoint that fails gets no requests; null: as below if there is another endpoint or a fallback, "
            "else never."
        ),
    )
    health: Health | None = Field(
        default=None, description="Requests by which the gateway finds endpoints that fail; null: none."
    )
    retry: Retry | None = Field(
        default=None,
        description=(
            "When a request is sent again; null: as below if there is another endpoint or a fallback, else only over "
            "a fresh connection, if an idle one was lost, and only a GET, its like, or a POST that only computes."
        ),
    )
    hedge: Duration | None = Field(
        default=None,
        description=(
            "Wait for an answer after which the request goes to a second endpoint, too; the first answer counts. Only "
            "for requests that may be sent twice, and within `retry`. null: never."
        ),
    )
    queue: Queue | None = Field(
        default=None,
        description="Requests that wait for a place (`endpoints[].concurrent`); null: they get 503 at once.",
    )
    limits: AllowanceSettings | None = Field(
        default=None, description="Limits of the upstream, over all callers; null: none."
    )
    fallback: tuple[Name, ...] = Field(
        default=(),
        description=(
            "Upstreams that take its requests, in this order, while none of its endpoints can, or its limits have no "
            "room. They must know the same models: the request goes there as it is."
        ),
    )

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the URLs of its endpoints."""
        return tuple(one.url for one in self.endpoints) or ((self.base_url,) if self.base_url is not None else ())

    @property
    def address(self) -> str:
        """Return its URL or URLs in one line, for people."""
        return ", ".join(self.urls)
