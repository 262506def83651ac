"""Anthropic's Messages as a dialect: blocks in requests and in answers."""

from dataclasses import dataclass

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.chat_request import brings_tool_results
from gateway.dialects.dialect import Dialect, ParsedRequest, Wishes
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.messages import ENDPOINT
from gateway.dialects.messages.answer import MessagesAnswer
from gateway.dialects.messages.conversation import MessagesConversation
from gateway.dialects.messages.fields import check_fields, convert_for_models
from gateway.dialects.messages.openapi import DESCRIBED
from gateway.dialects.messages.tools import resolve_tools


@dataclass(slots=True, kw_only=True)
class MessagesAsked(ParsedRequest):
    """A request for a message. `stops` are its stop sequences; `shows_calls`: it names tools of the gateway."""

    stops: tuple[str, ...]
    shows_calls: bool


class MessagesDialect:
    """See `Dialect`."""

    endpoint = ENDPOINT
    description = DESCRIBED

    def parse(self, content: bytes, *, needs_model: bool) -> MessagesAsked:
        """Return the request, checked. Raises GatewayError."""
        body = parse_json_object(content)
        check_fields(body, needs_model=needs_model)
        return parse_request(body)

    def build_writer(self, asked: ParsedRequest, *, run_id: str, created_s: float) -> MessagesAnswer:
        """Return the writer of the message. `run_id` is the id of the request."""
        del created_s  # a message has no time
        assert isinstance(asked, MessagesAsked)
        model = str(asked.body.get("model", ""))
        return MessagesAnswer(request_id=run_id, model=model, stops=asked.stops, shows_calls=asked.shows_calls)


def parse_request(body: Json) -> MessagesAsked:
    """Return a checked body as a request. Raises GatewayError."""
    conversation = MessagesConversation()
    if "system" in body:
        conversation.add_system(body["system"])
    conversation.add_all(body["messages"])
    tools = resolve_tools(body)
    messages = conversation.messages
    if not messages:
        text = "'messages' has nothing that a model could answer: send a message with a text."
        raise GatewayError("invalid_field", text, param="messages")
    wishes = Wishes(
        offers=tools.offers,
        no_tools=tools.no_tools,
        must_call=tools.must_call,
        notes=tools.notes,
        asks_in_text=tools.offers is not None,
        tainted=brings_tool_results(messages),
        thoughts=tuple(conversation.thoughts),
        results=tuple(conversation.results),
    )
    return MessagesAsked(
        body={**convert_for_models(body), "messages": messages, **tools.fields},
        text=conversation.text,
        streams=body.get("stream") is True,
        wishes=wishes,
        stops=tuple(body.get("stop_sequences") or ()),
        shows_calls=tools.offers is not None,
    )


DIALECT: Dialect = MessagesDialect()
