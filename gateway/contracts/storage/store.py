"""The stored objects besides runs and responses: prompts, services, memories, hidden turns; the protocol of a store."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Journal
from gateway.contracts.storage.keys import KeyStore
from gateway.contracts.storage.quota import QuotaStore
from gateway.contracts.storage.replicas import ReplicaStore
from gateway.contracts.storage.responses import ResponseStore
from gateway.contracts.storage.tables import StoreTables
from gateway.contracts.storage.usage import UsageStore

#: A JSON object as orjson reads it: values are JSON values.
Json: TypeAlias = dict[str, Any]

ServiceState = Literal["stopped", "starting", "running", "error"]


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """A base prompt that a tenant stored; `version` counts its changes from 1."""

    id: str
    tenant: str
    text: str
    version: int
    updated_s: float  # Unix time


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered sentence; `conversation` None: it applies in all those of its owner (`get_memory_owner`)."""

    id: str
    tenant: str
    owner: str
    conversation: str | None
    text: str
    created_s: float  # Unix time


def get_memory_owner(*, user: str | None, key: str) -> str:
    """Return the owner of a request's memories: the end user, or the key where the client names no user."""
    return f"key:{key}" if user is None else f"user:{user}"


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory, and the share of a text's content that it has: 0 to 1."""

    memory: Memory
    share: float


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """A page of memories, the newest first; the rest begins before `next`; None: this is the last page."""

    memories: Sequence[Memory]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredService:
    """The record of a service: whether and how it was registered, and its accepted definitions (`pins`).

    `config` is the JSON object it was registered with; None: it stands in the configuration file. `stopped`: an
    operator stopped it. `restarts` counts the restarts that operators requested. `version` counts all changes, from 1.
    """

    name: str
    config: bytes | None = None
    stopped: bool = False
    restarts: int = 0
    pins: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    updated_s: float = 0.0  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBacklog:
    """The approvals and runs that wait, of all tenants.

    `pending` counts the approvals. The one that expires first was made at `oldest_s` (Unix time). `runs` counts the
    runs that have not ended, by their states; `stuck` counts the stuck ones of them.
    """

    pending: int = 0
    oldest_s: float | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
    stuck: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerService:
    """A service as one worker sees it."""

    worker: str
    name: str
    state: ServiceState
    error: str | None = None
    updated_s: float  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTurn:
    """The messages that a client did not see around one of its answers: `before` it, and `behind` it.

    They are the messages of a run from number `start` up to `end`. `behind`: the messages that followed a turn that
    ended before its run did. `tainted`: some of it may be untrusted text. `conversation` is the name that the client
    gave to its conversation.
    """

    id: str
    run_id: str
    start: int
    end: int
    before: Sequence[Json] = ()
    behind: Sequence[Json] = ()
    tainted: bool = False
    conversation: str | None = None

    def overlaps(self, other: "HiddenTurn") -> bool:
        """Return whether both contain a message of the same run."""
        return self.id == other.id or (
            self.run_id == other.run_id and self.start < other.end and other.start < self.end
        )


class Store(Journal, ResponseStore, KeyStore, UsageStore, QuotaStore, ReplicaStore, Protocol):
    """The storage of everything that outlives a request. Each method is one transaction of the store.

    A method raises StoreError when it fails. Then nothing has changed, and nothing will, unless it is an
    UncertainError or a PartialError.
    """

    async def open(self) -> None:
        """Open the store. Await it before every other method.

        Raises StoreAwayError while its server cannot be reached: you may call it again.
        """
        ...

    async def read_clock(self) -> float | None:
        """Return the time (Unix) of the store's server, by which all gateways go; None: it has no clock of its own."""
        ...

    async def list_all_prompts(self) -> Sequence[StoredPrompt]:
        """Return the prompts of all tenants, in the order of their ids."""
        ...

    async def list_prompts(self, *, tenant: str, after: str = "", limit: int) -> Sequence[StoredPrompt]:
        """Return the first `limit` prompts of a tenant behind the id `after`, in the order of their ids."""
        ...

    async def get_prompt(self, prompt_id: str, *, tenant: str) -> StoredPrompt | None: ...

    async def put_prompt(self, prompt_id: str, text: str, *, tenant: str, now_s: float) -> StoredPrompt: ...

    async def delete_prompt(self, prompt_id: str, *, tenant: str) -> bool:
        """Delete a prompt; return whether there was one."""
        ...

    async def get_generation(self) -> int:
        """Return the number of changes of prompts (and later of services and grants), by all processes."""
        ...

    async def list_services(self) -> Sequence[StoredService]:
        """Return the services in the order of their names."""
        ...

    async def put_service(self, service: StoredService, *, expected: int) -> bool:
        """Write it as the next version of version `expected` (0: there is none yet); False: it is another by now."""
        ...

    async def delete_service(self, name: str) -> bool:
        """Delete a service; return whether there was one."""
        ...

    async def put_definitions(self, definitions: Mapping[str, str]) -> None:
        """Store definitions of MCP tools (JSON) by their SHA-256. One that is there stays as it is.

        A store may delete the oldest beyond some number of them.
        """
        ...

    async def find_definitions(self, sha256s: Sequence[str]) -> Mapping[str, str]:
        """Return the stored ones of these definitions, by their SHA-256."""
        ...

    async def report_services(self, worker: str, services: Sequence[WorkerService]) -> None:
        """Store the services as this worker sees them, in place of its last report."""
        ...

    async def list_reported_services(self, *, since_s: float) -> Sequence[WorkerService]:
        """Return the services as all workers see them, as far as they have reported them since `since_s`."""
        ...

    async def remember(self, memory: Memory, *, limit: int) -> bool:
        """Store a memory, and keep the newest `limit` memories of this tenant and owner.

        False: the owner has this text in this conversation already, and nothing changes.
        """
        ...

    async def recall(
        self, text: str, *, tenant: str, owner: str, conversation: str | None, limit: int
    ) -> Sequence[RecalledMemory]:
        """Return the memories that are closest to the subject of `text`, best first, then the newest.

        It searches the memories of the conversation (if one is named) and the ones that hold for all conversations. Its
        cost does not grow with the number of memories.
        """
        ...

    async def list_memories(self, *, tenant: str, owner: str, before: int | None, limit: int) -> MemoryPage:
        """Return a page of the memories of all conversations; `before` is `next` of the preceding page."""
        ...

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, owner: str | None) -> int:
        """Delete these memories; return how many there were. `owner` None: any owner of the tenant.

        Many are deleted in steps. Raises PartialError if a step fails behind others.
        """
        ...

    async def forget_all(self, *, tenant: str, owner: str, conversation: str | None, elsewhere: bool) -> int:
        """Delete the memories that `recall` finds, with `elsewhere` also memories of other conversations.

        Returns how many. Its time grows with their number. It works in steps between which others can write.
        Raises PartialError if a step fails behind others, which leaves the rest.
        """
        ...

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        """Store a hidden turn under keys by which its answer is recognised (`gateway.agent.hidden.answer_keys`).

        It replaces the turn of its id. A key that comes to mean two turns means none from then on.
        """
        ...

    async def record_answer(self, turn_id: str, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        """Record the keys of an answer without a hidden part, as `put_hidden` does: they may come to mean two turns.

        The keys are on their way when this returns: `find_hidden_turns` of this store knows them, and within a tenth of
        a second all workers do. A failure is logged.
        """
        ...

    async def find_hidden_turns(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn | None]:
        """Return the hidden turns of these keys, by key. None: the key means two. Answers without one are left out."""
        ...

    async def prune(self, *, before_s: float, limit: int) -> int:
        """Delete rows of ended runs and hidden turns older than `before_s`, and of grants that ended before.

        Also of responses that were created before, of conversations that did not change since, and of keys that ended
        before. Returns how many, at most `limit`; 0: there are none left. What other rows belong to is deleted after
        all of them. A response may stay for as long as one does that was stored before it. The audit log stays.
        """
        ...

    async def get_or_create_secret(self, name: str) -> bytes:
        """Return the secret of this name: 32 random bytes that the first call stores, for all processes."""
        ...

    async def end_session(self, digest: str, *, until_s: float, now_s: float) -> None:
        """Store that a session of the console has ended, until `until_s`; delete the ones whose time is over."""
        ...

    async def find_ended_sessions(self, digests: Collection[str]) -> Collection[str]:
        """Return the digests among these whose sessions have ended."""
        ...

    async def take_duty(self, name: str, *, owner: str, now_s: float, until_s: float) -> bool:
        """Assign a duty, which one process performs for all processes, to this owner until `until_s`.

        False: it is another owner's now.
        """
        ...

    async def count_backlog(self, *, stuck_before_s: float) -> StoreBacklog:
        """Return the approvals and runs that wait, of all tenants.

        A run is stuck if it is under way and its lease ended before `stuck_before_s`.
        """
        ...

    async def find_loss_reason(self) -> str | None:
        """Return the reason why nothing that is written now would be there after a restart; None: there is none.

        If the store does not answer for a second, it is the reason of the last time.
        """
        ...

    async def close(self) -> None:
        """Close the store. Idempotent."""
        ...


#: A line of the audit log as it is stored: number, line, hash.
KeptLine: TypeAlias = tuple[int, Mapping[str, object], str]


class StoreFile(Protocol):
    """The file of a store, read beside the gateways that write it. Every method raises StoreError."""

    def audit_log(self, *, after: int, size: int) -> Iterator[list[KeptLine]]:
        """Yield the lines behind a number, in pieces that are not empty and have `size` lines at most."""
        ...

    def audit_guards(self) -> list[str]:
        """Return the guards of the log that are missing, changed or added."""
        ...

    def write_copy(self, draft: str, *, progress: Callable[[int, int], None]) -> None:
        """Copy one moment to an empty file, and read the copy; `progress` gets the remaining and the total amount."""
        ...


class StoreAddress(Protocol):
    """The URL of a store, which is not opened by any of this."""

    @property
    def url(self) -> str:
        """Return the URL with an absolute path, where it names a file."""
        ...

    @property
    def redacted_url(self) -> str:
        """Return the URL without secrets, for people."""
        ...

    @property
    def file(self) -> Path | None:
        """Return the file of the store; None: it has none that can be read beside gateways."""
        ...

    @property
    def is_shared(self) -> bool:
        """Return whether gateways on several machines may use the store."""
        ...

    def problem(self) -> str | None:
        """Return why the store could not be opened for writing, and the way out; None: nothing is known."""
        ...

    def get_reader(self) -> StoreFile:
        """Return the reader of the file. Raises StoreError if there is none."""
        ...

    def get_tables(self) -> StoreTables:
        """Return the tables of the store, to copy it. Raises StoreError if it cannot be copied."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The state of a database server with a store.

    `connection_limit` is the number of connections that it has for gateways. `clock_ahead_s` says by how much its clock
    is ahead of this machine's. `schema_version` is that of the store, 0 if there is none yet, and `known_version` that
    of this program; `schema_problem` is why this program cannot use it. `gateways` counts those that share limits or
    count budgets now.
    """

    connection_limit: int
    clock_ahead_s: float
    schema_version: int
    known_version: int
    schema_problem: str | None
    gateways: int


@runtime_checkable
class ServerAddress(Protocol):
    """Part of the address of a store in a database server, whose connections all its gateways share."""

    @property
    def connections(self) -> int:
        """Return the number of connections of each process."""
        ...

    def read_state(self) -> ServerState:
        """Read the state of the server, and change nothing. Raises StoreError. Call it where no event loop runs."""
        ...


class StoreError(Exception):
    """The store failed; the text is for the operator's log."""


class StoreAwayError(StoreError):
    """The error that the server of the store cannot be reached, or takes no connection now: it may come back."""


class UncertainError(StoreError):
    """An uncertain write: it may be in the store after a crash, or not. Until then it is not."""


class PartialError(StoreError):
    """A failure behind steps of the same work, which are done and stay."""


class UnwrittenError(GatewayError):
    """The answer to a request whose write failed."""


class UntoldError(GatewayError):
    """The answer to a request behind whose run the store failed, or the process stops.

    What the run did stays done, and is on record.

    Its status is 422: clients send a 507 again, and it would refuse a decision in the request.
    """

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(code, message, param=param, retry_after_s=retry_after_s)
        self.facts, self.settled = self.mark_after_effects().facts, True


def build_unwritten_error(error: StoreError, text: str) -> UnwrittenError:
    """Return the answer to a request whose write failed; `text` is its message where surely nothing has changed."""
    if isinstance(error, UncertainError):
        return UnwrittenError(
            "store_uncertain",
            "The gateway's store failed, and again while it undid what it had begun to write: it is not stored now, "
            "but may be after a restart. Look at it again once the store works; the gateway's log says what is wrong.",
        )
    if isinstance(error, PartialError):
        text = "The gateway's store failed midway: a part of this is done and stays, the rest is not. Send it again."
        return UnwrittenError("store_full", text)
    return UnwrittenError("store_full", text)


def build_unknown_outcome_error(run_id: str) -> UntoldError:
    """Return the answer to a request whose run may have acted, or may do so yet, though the store failed behind it."""
    text = (
        f"The gateway's store failed behind the run {run_id}, which may have run tools, or may do so yet. Do not send "
        "the request again: look at the run with its id once the store works."
    )
    return UntoldError("store_full", text)
