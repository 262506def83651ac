"""The Responses API as a dialect: items in requests, items and events in answers.

It has separate pages (gateway/api/responses/), because a request may go on from earlier ones, which are stored.
"""

import time
from typing import NoReturn

from gateway.dialects.dialect import Dialect, ParsedRequest
from gateway.dialects.responses import ENDPOINT
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.conversation import ResponseAsked, resolve_request
from gateway.dialects.responses.ids import build_response_id
from gateway.dialects.responses.openapi import DESCRIBED
from gateway.dialects.responses.request import parse_request
from gateway.dialects.responses.response_metadata import ResponseFacts


class ResponsesDialect:
    """See `Dialect`."""

    endpoint = ENDPOINT
    description = DESCRIBED

    def parse(self, content: bytes, *, needs_model: bool) -> ResponseAsked:
        """Return a request that goes on from nothing which is stored. Raises GatewayError."""
        return resolve_request(parse_request(content, needs_model=needs_model), unseal=_refuse_sealed)

    def build_writer(self, asked: ParsedRequest, *, run_id: str, created_s: float) -> ResponseAnswer:
        """Return the writer of the response to what `parse` returned."""
        assert isinstance(asked, ResponseAsked)
        return ResponseAnswer(
            ResponseFacts.from_request(asked),
            response_id=build_response_id(run_id),
            created_s=created_s,
            now_s=time.time,
            background=asked.request.background,
        )


def _refuse_sealed(sealed: str) -> NoReturn:
    raise ValueError(sealed)


DIALECT: Dialect = ResponsesDialect()
