"""Requests with an Idempotency-Key that come again: they get the response of the first, as long as that is stored.

1. The key of a request that begins a run is the run's. It leads to the response that the run began with.
2. A request that decides, or lets a stored run go on, begins none: its response has the key.
"""

from collections.abc import Awaitable
from dataclasses import dataclass

from gateway.api.responses.response_rows import is_hidden
from gateway.api.responses.response_store import KeptResponses
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import ENDED, KeyTakenError, StoredRun
from gateway.contracts.storage.responses import StoredResponse
from gateway.dialects.responses.ids import build_response_id
from gateway.runs.idempotency_key import RequestKey, build_key_in_use_error, build_mismatch_error
from gateway.runs.live_run import LiveRun


class AnsweredBefore(Exception):  # noqa: N818 - it is an answer
    """The answer to a request that repeats one: a response that began with the first of them."""

    def __init__(self, row: StoredResponse) -> None:
        super().__init__(row.id)
        self.row = row


@dataclass(slots=True)
class Repeats:
    """The search for the response that one request repeats, and the beginning of a new one where there is none."""

    kept: KeptResponses
    caller: Caller
    _takes_key_of: str | None = None

    async def joins(self, run: LiveRun) -> bool:
        """Return whether a request may join a live run: not if its response was deleted. Raises StoreError."""
        row = await self.kept.store.get_response(build_response_id(run.request_id), tenant=self.caller.tenant)
        return row is None or not is_hidden(row)

    async def check_key(self, request_key: RequestKey, run: StoredRun | None) -> None:
        """Raise AnsweredBefore if a response is stored for a key, which is then the answer. `run` has the key.

        A request that ended before it had an effect, without an answer, is begun anew. One whose run waits for its
        client goes on. Raises GatewayError (idempotency_mismatch), StoreError.
        """
        row = await self._find_by_key(request_key)
        if row is not None:
            self._takes_key_of = row.id
            of_row = await self.kept.store.run(row.run_id, tenant=row.tenant)
            if not is_hidden(row) and (of_row is None or of_row.state != "awaiting_client"):
                raise AnsweredBefore(row)
            return
        if run is None or run.state == "awaiting_client" or (row := await self.kept.find_response_of_run(run)) is None:
            return
        if row.background or run.effects or run.state == "completed" or run.state not in ENDED:
            raise AnsweredBefore(row)

    async def store_response(self, row: StoredResponse, request_key: RequestKey) -> None:
        """Store a response that begins, unless another request with its key has just begun one.

        Raises AnsweredBefore, GatewayError, StoreError.
        """
        try:
            await self.kept.store_response(row, takes_key_of=self._takes_key_of)
        except KeyTakenError:
            first = await self._find_by_key(request_key)
            raise build_key_in_use_error() if first is None else AnsweredBefore(first) from None

    async def _find_by_key(self, request_key: RequestKey) -> StoredResponse | None:
        """Return the response that has the key of a request. Raises GatewayError (idempotency_mismatch), StoreError."""
        if request_key.idempotency_key is None:
            return None
        key, caller = request_key.idempotency_key[2], self.caller
        found = await self.kept.store.find_response_with_key(key, tenant=caller.tenant, caller=caller.name)
        if found is not None and found.fingerprint != request_key.fingerprint:
            raise build_mismatch_error()
        return found


async def find_repeated_response(finding: Awaitable[StoredResponse]) -> StoredResponse:
    """Return the response that a request repeats, as it is found. Raises GatewayError (idempotency_in_use): deleted."""
    try:
        return await finding
    except GatewayError as error:
        if error.code != "response_not_found":
            raise
    raise GatewayError(
        "idempotency_in_use",
        "The response to the same request was deleted just now: send it again, and it begins anew.",
        param="idempotency-key",
        retry_after_s=0.5,
    )
