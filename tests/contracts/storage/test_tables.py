"""The list of the tables that stores have in common."""

from dataclasses import fields

import pytest

from gateway.contracts.storage.audit_chain import AuditLine
from gateway.contracts.storage.grants import AskBefore, Grant
from gateway.contracts.storage.journal import Approval, RunEvent, StoredRun, StoredStep
from gateway.contracts.storage.keys import StoredKey
from gateway.contracts.storage.responses import StoredConversation, StoredResponse
from gateway.contracts.storage.store import HiddenTurn, StoredPrompt, StoredService, WorkerService
from gateway.contracts.storage.tables import TABLES
from gateway.contracts.storage.usage import StoredUsage

RECORDS = {
    "prompts": StoredPrompt,
    "services": StoredService,
    "worker_services": WorkerService,
    "hidden": HiddenTurn,
    "runs": StoredRun,
    "steps": StoredStep,
    "approvals": Approval,
    "grants": Grant,
    "asks": AskBefore,
    "events": RunEvent,
    "audit": AuditLine,
    "responses": StoredResponse,
    "conversations": StoredConversation,
    "keys": StoredKey,
    "usage": StoredUsage,
}


@pytest.mark.parametrize("table", RECORDS)
def test_table_has_a_column_for_each_field_of_its_records(table: str) -> None:
    """The request of a run stands in a table of its own."""
    missing = {field.name for field in fields(RECORDS[table])} - set(TABLES[table])
    assert missing == ({"request"} if table == "runs" else set())


def test_columns_of_a_table_are_different() -> None:
    assert all(len(set(columns)) == len(columns) > 1 for columns in TABLES.values())
