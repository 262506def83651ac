"""The bounds of requests to the gateway's own API."""

import pytest

from gateway.api.approvals import Batch
from gateway.api.openapi.document import build_document
from gateway.api.request import parse_limit
from gateway.contracts.api_bounds import BATCH_MOST, LIMIT, LIMIT_MOST
from gateway.contracts.errors import GatewayError


def test_api_describes_the_limits_that_its_clients_keep() -> None:
    (limit,) = (
        one for one in build_document()["paths"]["/context/runs"]["get"]["parameters"] if one["name"] == "limit"
    )
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": LIMIT_MOST, "default": LIMIT}


def test_pages_take_the_largest_limit_and_no_larger_one() -> None:
    assert parse_limit({"limit": str(LIMIT_MOST)}) == LIMIT_MOST
    with pytest.raises(GatewayError, match="out of range"):
        parse_limit({"limit": str(LIMIT_MOST + 1)})


def test_batch_takes_the_largest_number_of_approvals_and_no_more() -> None:
    ids = [{"id": f"ap_{number}"} for number in range(BATCH_MOST + 1)]
    assert len(Batch.model_validate({"decision": "approve", "approvals": ids[1:]}).approvals) == BATCH_MOST
    with pytest.raises(ValueError, match="at most"):
        Batch.model_validate({"decision": "approve", "approvals": ids})
