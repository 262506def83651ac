"""The other workers on the store of this one: it finds them, calls them, and is found once something needs that."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store
from gateway.upstream.replicas.client import NotReachedError, ReplicaAnswer, ReplicaClient
from gateway.upstream.replicas.directory import ReplicaDirectory
from gateway.upstream.replicas.seals import SEAL_SECRET, ReplicaSeal, ReplicaSeals, SealedRequest, SealError


class Replicas:
    """The other workers, for the worker `owner`. `listen` begins to listen for them, and returns the address for them.

    Without `listen` no other worker can use the store.
    """

    def __init__(
        self, store: Store, *, owner: str, clock: Clock, listen: Callable[[], Awaitable[str]] | None = None
    ) -> None:
        self.owner = owner
        self.directory = ReplicaDirectory(store, owner=owner, clock=clock)
        self._store = store
        self._clock = clock
        self._listen = listen
        self._opening = asyncio.Lock()
        self._seals: ReplicaSeals | None = None
        self._client: ReplicaClient | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_possible(self) -> bool:
        """Return whether other workers can use the store."""
        return self._listen is not None

    async def open(self) -> None:
        """Let other workers find this one from now on. Idempotent. Raises StoreError, and OSError for its port."""
        async with self._opening:
            if self._client is not None or self._listen is None:
                return
            self._seals = ReplicaSeals(await self._store.get_or_create_secret(SEAL_SECRET), owner=self.owner)
            self.directory.publish(await self._listen())
            await self.directory.refresh()
            self._client = ReplicaClient(self.directory, self._seals, clock=self._clock.monotonic)
            self._renewing = asyncio.get_running_loop().create_task(self.directory.run())

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
        """Send a request to another worker (`ReplicaClient.send`). Raises NotReachedError and LostReplicaError."""
        if self._client is None:
            raise NotReachedError("this worker has no others")
        return await self._client.send(worker, method, target, fields=fields, body=body, client=client)

    def read_seal(self, request: SealedRequest) -> ReplicaSeal:
        """Return the seal of a request to this worker. Raises SealError."""
        if self._seals is None:
            raise SealError("this worker has no others")
        return self._seals.read(request)

    async def close(self) -> None:
        """Give all leases back. Idempotent."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        await self.directory.close()
