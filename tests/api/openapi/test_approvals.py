"""The schemas of approvals hold for what the API answers."""

import json

import jsonschema_rs

from gateway.api.openapi.schemas import schemas
from gateway.api.openapi.shapes import REFERENCE
from tests.api.approval_pages import opened
from tests.plugins.stores.records import parked


async def test_approval_and_group_answers_match_their_schemas() -> None:
    """Each field is there and has its type."""
    text = json.dumps({"$defs": schemas()}).replace(REFERENCE, "#/$defs/")
    async with opened(parked(), parked("run_2", approval_id="ap_2", caller="bob")) as desk:
        for path, name in (("/context/approvals", "Approval"), ("/context/approvals/groups?by=caller", "CallGroup")):
            _, found = await desk.get(path)
            assert len(found["data"]) == 2
            for view in found["data"]:
                jsonschema_rs.validator_for({**json.loads(text), "$ref": f"#/$defs/{name}"}).validate(view)
