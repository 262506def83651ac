"""The console's place in a worker: it is imported and built for its first request, so a start does not wait for it."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web

from gateway.api.decisions import resume_runs
from gateway.auth.keyring import Key, KeyRing, LentKeys
from gateway.config import Settings
from gateway.context.lane import ContextLane
from gateway.contracts.caller import LOCAL
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store
from gateway.lanes.aiohttp_adapter import get_head
from gateway.lanes.auth_failures import WrongKeys
from gateway.server.console_ipc import SocketFolder, remove_left_folders
from gateway.server.lazy_service import FirstUse, import_in_thread
from gateway.server.worker_services import WorkerServices

if TYPE_CHECKING:
    from gateway.approvals.link_desk import LinkDesk
    from gateway.console.assembly import Assemble, ConsoleHandle
    from gateway.console.middleware import Holder
    from gateway.console.rendering import TemplateRenderer

log = logging.getLogger("gateway")

#: The secret of the store that signs sessions.
SECRET: Final = "console"  # noqa: S105 - its name


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """The configuration in use, as far as the console needs it."""

    settings: Settings
    keys: KeyRing
    lane: ContextLane


class GatewayConditions:
    """The keys, sessions and settings of one worker (`gateway.console.middleware.Conditions`)."""

    def __init__(
        self, store: Store, *, clock: Clock, lent: LentKeys, in_use: Callable[[], ActiveConfig], wrong_keys: WrongKeys
    ) -> None:
        self._store = store
        self._clock = clock
        self._lent = lent
        self._in_use = in_use
        self._wrong_keys = wrong_keys
        self._asked: set[str] = set()
        self._look: asyncio.Task[Collection[str]] | None = None

    @property
    def keyless(self) -> bool:
        return self._in_use().keys.is_empty

    @property
    def is_secure(self) -> bool:
        return (self._in_use().settings.console_url or "").startswith("https:")

    def get_session_s(self) -> float:
        """Return the time after which a person signs in anew."""
        return self._in_use().settings.console.session

    def authenticate_key(self, key: str, request: web.Request) -> "Holder":
        return self._build_holder(self._in_use().keys.find_key(key, peer=_find_address(request)))

    def find_holder(self, name: str, fingerprint: str | None, request: web.Request) -> "Holder | None":
        keys = self._in_use().keys
        if not self._in_use().settings.console.enabled:
            return None  # its open pages end
        if keys.is_empty:
            found = [Key(b"", LOCAL)] if name == "" else []
        else:
            found = [key for key in keys.get_keys_by_name(name) if key.is_open_to(_find_address(request))]
        holders = map(self._build_holder, found)
        return next((holder for holder in holders if fingerprint in (None, holder.fingerprint)), None)

    def _build_holder(self, key: Key) -> "Holder":
        from gateway.console.middleware import Holder

        return Holder(key.caller, hashlib.sha256(key.digest).hexdigest()[:32], self._lent.get_lent_token(key))

    def record_refusal(self, error: GatewayError, request: web.Request) -> None:
        peer = None if request.transport is None else request.transport.get_extra_info("peername")
        self._wrong_keys.record_refusal(error, peer=peer, method=request.method, path=request.rel_url.raw_path)

    async def end_session(self, session_id: str, *, until_s: float) -> None:
        await self._store.end_session(_hash_session_id(session_id), until_s=until_s, now_s=self._clock.time())

    async def has_session_ended(self, session_id: str) -> bool:
        """Return whether a person signed out of the session. All that ask at once share a look at the store.

        An event is news for hundreds of open pages, whose sessions are looked at before each of them gets it.
        """
        if self._look is None:
            self._look = asyncio.get_running_loop().create_task(self._find_ended_sessions())
        self._asked.add(digest := _hash_session_id(session_id))
        return digest in await asyncio.shield(self._look)

    async def _find_ended_sessions(self) -> Collection[str]:
        await asyncio.sleep(0)  # until all callers in this turn of the loop have added their sessions
        asked, self._asked, self._look = self._asked, set(), None
        return await self._store.find_ended_sessions(asked)


class ConsoleEntry:
    """The way of a request to the console. `listeners` make the protocols of connections to each address, by name."""

    def __init__(
        self,
        shared: WorkerServices,
        *,
        lent: LentKeys,
        in_use: Callable[[], ActiveConfig],
        resume: Callable[[str], Awaitable[None]],
        wrong_keys: WrongKeys,
        listeners: Callable[[], Mapping[str, Callable[[], asyncio.Protocol]]],
    ) -> None:
        store, clock = shared.store, shared.clock
        self._conditions = GatewayConditions(store, clock=clock, lent=lent, in_use=in_use, wrong_keys=wrong_keys)
        self._shared = shared
        self._in_use = in_use
        self._resume = resume
        self._listeners = listeners
        self._folder: SocketFolder | None = None
        self._servers: list[asyncio.Server] = []
        self._leaves = False
        self._assembled = FirstUse(self._assemble, end=lambda assembled: assembled.close())

    async def answer_request(self, request: web.Request) -> web.StreamResponse:
        """Return the console's answer; the first request builds it."""
        return await (await self._assembled.get()).console.answer_request(request)

    async def end_open_streams(self) -> None:
        """End what is held open, because the gateway stops. From now on nothing is held. Idempotent."""
        self._leaves = True
        if (assembled := self._assembled.part) is not None:
            await assembled.leave()

    async def close(self) -> None:
        """Close the connections and the sockets. Idempotent."""
        await self._assembled.close()
        self._close_sockets()

    async def _assemble(self) -> "ConsoleHandle":
        assemble, rendering = await import_in_thread(_import_console)
        sessions = (
            await self._shared.store.get_or_create_secret(SECRET),
            self._conditions.get_session_s,
            self._shared.clock.time,
        )
        made = assemble(
            rendering,
            sockets=await self._listen(),
            conditions=self._conditions,
            sessions=sessions,
            links=self._link_desk(),
        )
        if self._leaves:
            await made.leave()
        return made

    def _link_desk(self) -> "LinkDesk":
        from gateway.approvals.link_desk import LinkDesk
        from gateway.approvals.links import Links

        shared, in_use = self._shared, self._in_use
        return LinkDesk(
            shared.store,
            Links(shared.store, lambda: in_use().settings.approvals.notify),
            approvals=lambda: in_use().lane.approvals,
            go_on=partial(resume_runs, self._resume),
            counters=shared.counters,
            clock=shared.clock,
        )

    async def _listen(self) -> Mapping[str, str]:
        """Listen on a socket for each address, in a folder that no other user may enter; return their paths by name.

        Raises GatewayError where they have no place.
        """
        paths: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(remove_left_folders)
        try:
            self._folder = SocketFolder.create()
            for number, (name, factory) in enumerate(self._listeners().items()):
                paths[name] = self._folder.build_socket_path(number)
                self._servers.append(await loop.create_unix_server(factory, paths[name]))
        except OSError as error:
            self._close_sockets()
            log.error("the console has no sockets in the folder for temporary files: %s", error)
            text = "The console cannot create its sockets: set TMPDIR to a short path that the gateway may write to."
            raise GatewayError("internal_error", text) from error
        return paths

    def _close_sockets(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


def _find_address(request: web.Request) -> str | None:
    """Return the address of a reader's browser; None: its connection is gone."""
    return None if request.transport is None else get_head(request).peer


def _import_console() -> "tuple[Assemble, TemplateRenderer]":
    # Imported here because templates and pages cost start-up time and memory, and many gateways serve no console.
    from gateway.console.assembly import assemble, compile_templates

    return assemble, compile_templates()


def _hash_session_id(session_id: str) -> str:
    """Return the form in which the store has the id of a session: the id itself stands in its cookie only."""
    return hashlib.sha256(session_id.encode()).hexdigest()
