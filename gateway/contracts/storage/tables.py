"""The tables that all stores have, as `gateway store copy` carries their rows from one store to another.

A store may have further tables and columns, as long as they follow from these: indexes, counts, the state of a process.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeAlias

#: A value of a row. What is true or false is 1 or 0.
TableValue: TypeAlias = str | bytes | int | float | None
TableRow: TypeAlias = tuple[TableValue, ...]


def _split(columns: str) -> Sequence[str]:
    return tuple(columns.split())


#: The columns of each table. Tables stand in an order in which they can be written. `sequences` has the last number
#: that was given to an event, whether or not the event is still there. Of `counters` only those above 0 count.
TABLES: Final[Mapping[str, Sequence[str]]] = {
    "counters": ("name", "value"),
    "prompts": _split("tenant id text version updated_s"),
    "services": _split("name config stopped restarts pins version updated_s"),
    "worker_services": _split("worker name state error updated_s"),
    "definitions": _split("seq sha256 content"),
    "secrets": ("name", "value"),
    "ended_sessions": ("digest", "until_s"),
    "duties": _split("name owner until_s"),
    "memory_owners": _split("id tenant owner"),
    "memories": _split("number owner_id conversation id text created_s words"),
    "hidden": _split("tenant id run_id start end before behind tainted created_s conversation"),
    "hidden_keys": _split("tenant key turn created_s"),
    "runs": _split("""id tenant caller kind chain conversation fingerprint idempotency_key state effects created_s
        updated_s progress answer error_code error owner lease_s fence workflow tool client holds_key"""),
    "requests": _split("tenant run_id request"),
    "steps": _split("""run_id tenant number round call_id tool model_name arguments sha256 terminate decision basis rule
        reason state approval_id result shown started_s finished_s risk_level tainted late answer"""),
    "approvals": _split("""id tenant caller conversation run_id step tool arguments sha256 definition_sha256
        policy_sha256 basis rule reason state created_s expires_s decided_s decided_by via comment edited remember
        secret user client required given assigned notes"""),
    "grants": _split("""id tenant caller run_id conversation tool sha256 definition_sha256 policy_sha256 created_s
        granted_by expires_s approvals user"""),
    "asks": _split("id tenant caller conversation created_s expires_s user"),
    "undelivered": _split("tenant fingerprint run_id created_s"),
    "awaited": _split("tenant run_id waiter until_s"),
    "events": _split("tenant run_id type data created_s seq"),
    "sequences": ("name", "last"),
    "audit": _split("""seq tenant caller run_id step event tool sha256 decision basis rule by via created_s hash"""),
    "responses": _split("""number id tenant caller state created_s run_id previous_id conversation background request
        input output idempotency_key fingerprint decides"""),
    "answer_chunks": _split("response number chunk"),
    "conversations": _split("number id tenant created_s metadata updated_s"),
    "conversation_items": _split("conversation number id item"),
    "conversation_decisions": ("conversation", "approval_id"),
    "keys": _split("""number id tenant name sha256 hint terms created_s created_by expires_s revoked_s revoked_by
        rotated_from used_s"""),
    "usage": _split("""tenant day key model upstream lane currency requests rejected cut estimated input cached output
        reasoning cost"""),
    "usage_days": ("day", "changes"),
    "usage_writers": ("writer", "added_s", "number"),
}


class TableReader(Protocol):
    """The tables of a store at one moment. Each method raises StoreError when it fails."""

    def count_rows(self, table: str) -> int: ...

    def read_rows(self, table: str) -> Iterator[Sequence[TableRow]]:
        """Yield the rows of a table in pieces, in the order of their age where the store knows it.

        A piece has some megabytes at most, unless a single row has more.
        """
        ...


class TableWriter(TableReader, Protocol):
    """The tables of a store that is being written, and has nothing for others before `commit`."""

    def write_rows(self, table: str, rows: Sequence[TableRow]) -> None:
        """Write rows behind the ones of this table that are written already."""
        ...

    def finish(self) -> None:
        """Write what follows from all rows. Call it before the rows are read again."""
        ...

    def commit(self) -> None:
        """Make the store visible to others, and durable."""
        ...


class StoreTables(Protocol):
    """The tables of the store with a URL. Use it where no event loop runs."""

    def open_source(self) -> AbstractContextManager[TableReader]:
        """Open one moment of the store for reading. Raises StoreError if a gateway uses the store."""
        ...

    def open_target(self) -> AbstractContextManager[TableWriter]:
        """Open a new store for writing. Raises StoreError if there is one that is not empty."""
        ...
