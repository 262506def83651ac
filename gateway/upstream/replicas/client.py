"""Requests of this worker to another one, and their answers as they arrive.

1. A request goes over a connection of its own, and is sent once: it may have an effect at the other worker.
2. An answer has no time limit: a call may wait for a person. It ends when the other worker is gone from the directory.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import Pool
from gateway.upstream.replicas.directory import ReplicaDirectory
from gateway.upstream.replicas.seals import SEAL_FIELD, ReplicaSeals, SealedRequest

CONNECT_S: Final = 2.0
#: The status with which a worker refuses a request that is not for it, or not from a gateway. It has done nothing.
MISDIRECTED: Final = 421


class NotReachedError(Exception):
    """The error that a request has not reached the other worker: it has done nothing."""


class LostReplicaError(Exception):
    """The error that the other worker went away, or does not answer: it may have done what was requested."""


class ReplicaAnswer:
    """The answer of another worker. Close it whatever happens: `close` is idempotent."""

    def __init__(self, call: UpstreamCall, forget: Callable[["ReplicaAnswer"], None], *, worker: str) -> None:
        self.worker = worker
        self.status = 0
        self.fields: Sequence[tuple[bytes, bytes]] = ()
        self._call = call
        self._forget = forget

    async def send(self, request: bytes) -> None:
        """Send the request and wait for the head of its answer. Raises NotReachedError and LostReplicaError."""
        try:
            head = await self._call.send(request)
        except GatewayError as error:
            raise (LostReplicaError if self._call.sent else NotReachedError)(error.message) from None
        self.status, self.fields = head.status, [(field.name, field.value) for field in head.fields]
        if self.status == MISDIRECTED:
            raise NotReachedError("it is not the worker that was there before")

    async def read_more(self) -> bytes:
        """Return the next part of the body; b"" at its end. Raises LostReplicaError."""
        try:
            return await self._call.read_more()
        except GatewayError as error:
            raise LostReplicaError(error.message) from None

    def close(self) -> None:
        """End the answer, and with it the connection: the other worker sees that its client has left."""
        self._forget(self)
        self._call.close()


class ReplicaClient:
    """The requests of one worker to others."""

    def __init__(self, directory: ReplicaDirectory, seals: ReplicaSeals, *, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._seals = seals
        self._clock = clock
        self._open: set[ReplicaAnswer] = set()
        directory.watch(self._end_lost_answers)

    async def send(
        self,
        worker: str,
        method: bytes,
        target: bytes,
        *,
        fields: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        client: str | None = None,
    ) -> ReplicaAnswer:
        """Send a request to a worker, and return the head of its answer, whose body follows.

        `client` is the address of the client behind the request. Raises NotReachedError and LostReplicaError.
        """
        address = self._directory.find_address(worker)
        if not address:
            raise NotReachedError("it is gone")
        host, _, port = address.rpartition(":")
        endpoint = Endpoint(
            name=worker, host=host.strip("[]"), port=int(port), authority=address.encode(), connect_s=CONNECT_S
        )
        call = UpstreamCall(Pool(endpoint, clock=self._clock), method=method, silence_s=math.inf, is_once=True)
        seal = self._seals.write(
            SealedRequest(method=method, target=target, fields=fields), body, receiver=worker, client=client
        )
        # A host name that every gateway takes for its own; the connection is not used again.
        sent = [(b"Host", b"localhost"), (b"Connection", b"close"), (SEAL_FIELD, seal), *fields]
        if method == b"POST":
            sent.append((b"Content-Length", b"%d" % len(body)))
        head = b"".join(b"%b: %b\r\n" % field for field in sent)
        answer = ReplicaAnswer(call, self._open.discard, worker=worker)
        self._open.add(answer)
        try:
            await answer.send(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, target, head, body))
        except BaseException:
            answer.close()
            raise
        return answer

    def _end_lost_answers(self) -> None:
        """End the answers of workers that are gone."""
        for answer in tuple(self._open):
            if self._directory.find_address(answer.worker) is None:
                answer.close()
