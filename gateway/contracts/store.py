"""What is kept besides runs: prompts, services, memories, hidden turns; and the whole of what a store does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from gateway.contracts.journal import Journal
from gateway.errors import GatewayError

#: A JSON object as orjson reads it: values are JSON values.
Json: TypeAlias = dict[str, Any]

ServiceState = Literal["stopped", "starting", "running", "error"]


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """A base prompt that somebody of a tenant stored; `version` counts its changes from 1."""

    id: str
    tenant: str
    text: str
    version: int
    updated_s: float  # Unix time


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered sentence; `conversation` None: it holds in all conversations of its owner (`memory_owner`)."""

    id: str
    tenant: str
    owner: str
    conversation: str | None
    text: str
    created_s: float  # Unix time


def memory_owner(*, user: str | None, key: str) -> str:
    """Returns whose memories those of a request are: the end user's, or the key's where its client names no user."""
    return f"key:{key}" if user is None else f"user:{user}"


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory, and how much of what a text tells it has: 0 to 1."""

    memory: Memory
    share: float


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Memories, the newest first; `next` is what the rest begins before; None: there is no more."""

    memories: Sequence[Memory]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredService:
    """What is kept of a service: whether and how it was registered, and what was accepted of it.

    `config` is the JSON object it was registered with; None: it stands in the configuration file. `stopped` by an
    operator; `restarts` counts how often an operator wanted it to start anew; `version` counts all changes, from 1.
    """

    name: str
    config: bytes | None = None
    stopped: bool = False
    restarts: int = 0
    pins: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    updated_s: float = 0.0  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What waits, of all tenants.

    `pending` approvals, of which the one that expires first was made at `oldest_s` (Unix time); `runs` that have not
    ended by their states, and `stuck` ones of them.
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
    """What a client did not see around one of its answers: messages in front of it, and behind it.

    They are those of a run from number `start` up to `end`. `behind`: what came of a turn that ended before its run
    did. `tainted`: a stranger may have written some of it.
    """

    id: str
    run_id: str
    start: int
    end: int
    before: Sequence[Json] = ()
    behind: Sequence[Json] = ()
    tainted: bool = False

    def overlaps(self, other: "HiddenTurn") -> bool:
        """Whether both hold a message of the same run."""
        return self.id == other.id or (
            self.run_id == other.run_id and self.start < other.end and other.start < self.end
        )


class Store(Journal, Protocol):
    """Everything that outlives a request. Each method is one transaction; all raise StoreError when it fails.

    Then nothing has changed, and nothing will, unless it is an UncertainError.
    """

    async def open(self) -> None:
        """Comes before everything else."""
        ...

    async def all_prompts(self) -> Sequence[StoredPrompt]:
        """Returns those of all tenants, in the order of their ids."""
        ...

    async def prompts(self, *, tenant: str, after: str = "", limit: int) -> Sequence[StoredPrompt]:
        """Returns the first `limit` of a tenant behind the id `after`, in the order of their ids."""
        ...

    async def prompt(self, prompt_id: str, *, tenant: str) -> StoredPrompt | None: ...

    async def put_prompt(self, prompt_id: str, text: str, *, tenant: str, now_s: float) -> StoredPrompt: ...

    async def delete_prompt(self, prompt_id: str, *, tenant: str) -> bool:
        """Whether there was one."""
        ...

    async def generation(self) -> int:
        """Counts changes of prompts (and later of services and grants), by whichever process."""
        ...

    async def services(self) -> Sequence[StoredService]:
        """In the order of their names."""
        ...

    async def put_service(self, service: StoredService, *, expected: int) -> bool:
        """Writes it as the next version of version `expected` (0: there is none yet); False: it is another by now."""
        ...

    async def delete_service(self, name: str) -> bool:
        """Whether there was one."""
        ...

    async def report_services(self, worker: str, services: Sequence[WorkerService]) -> None:
        """What this worker sees, in the place of what it saw before."""
        ...

    async def reported_services(self, *, since_s: float) -> Sequence[WorkerService]:
        """What all workers see, as far as they said so since then."""
        ...

    async def remember(self, memory: Memory, *, limit: int) -> bool:
        """Keeps the newest `limit` memories of this tenant and owner.

        False: the owner has this text in this conversation already, and nothing changes.
        """
        ...

    async def recall(
        self, text: str, *, tenant: str, owner: str, conversation: str | None, limit: int
    ) -> Sequence[Recalled]:
        """Returns the memories that are most about what `text` is, best first, then the newest.

        Those of the conversation (if one is named) and those of all conversations. What it costs does not grow with
        the number of memories.
        """
        ...

    async def memories(self, *, tenant: str, owner: str, before: int | None, limit: int) -> MemoryPage:
        """Returns those of all conversations; `before` is `next` of the page in front of this one."""
        ...

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, owner: str | None) -> int:
        """How many of them were there and are gone; `owner` None: whoever's of the tenant."""
        ...

    async def forget_all(self, *, tenant: str, owner: str, conversation: str | None, elsewhere: bool) -> int:
        """Forgets what `recall` finds, and with `elsewhere` what holds in other conversations; returns how many.

        It takes as long as they are many, in steps between which others write: one that fails leaves the rest.
        """
        ...

    async def put_hidden(
        self, turn: HiddenTurn, *, key: str, own_keys: Sequence[str], tenant: str, now_s: float
    ) -> None:
        """Keeps a hidden turn under keys by which its answer is recognised (`gateway.agent.turns`).

        `key` means the newest turn that was put under it. One of `own_keys` that came to mean two turns means none.
        """
        ...

    async def hidden(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn]:
        """The hidden turns that these keys mean, by key."""
        ...

    async def prune(self, *, before_s: float, limit: int) -> int:
        """Deletes rows of ended runs and hidden turns that are older, and of grants that ended before; how many.

        At most `limit` of them; a run goes behind all that is its own. The audit log stays. 0: there are none left.
        """
        ...

    async def take_duty(self, name: str, *, owner: str, now_s: float, until_s: float) -> bool:
        """Makes what one process does for all of them this owner's until then; False: it is another's now."""
        ...

    async def standing(self, *, stuck_before_s: float) -> Standing:
        """What waits, of all tenants; a run is stuck that is under way with a lease that ended before then."""
        ...

    def lost(self) -> str | None:
        """The reason why nothing that is written now would be there after a restart; None: there is none."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...


#: A line of the audit log as it is kept: number, line, hash.
KeptLine: TypeAlias = tuple[int, Mapping[str, object], str]


class StoreFile(Protocol):
    """The file of a store, read beside the gateways that write it. Every method raises StoreError."""

    def audit_log(self, *, after: int, size: int) -> Iterator[list[KeptLine]]:
        """Yields the lines behind a number, in pieces that are not empty and have `size` lines at most."""
        ...

    def audit_guards(self) -> list[str]:
        """Returns what of the log's guards is missing, changed or added."""
        ...

    def copy_to(self, draft: str, *, progress: Callable[[int, int], None]) -> None:
        """Copies one moment to an empty file, and reads the copy; `progress` gets what is left, and the whole."""
        ...


class StoreError(Exception):
    """The store failed; the text is for the operator's log."""


class UncertainError(StoreError):
    """What was to be written may be in the store after a crash, or not: nobody knows. Until then it is not."""


class UnwrittenError(GatewayError):
    """The answer to a request whose write failed."""


def unwritten(error: StoreError, text: str) -> UnwrittenError:
    """Returns the answer to a request whose write failed; `text` tells that nothing has changed, where that is sure."""
    if isinstance(error, UncertainError):
        return UnwrittenError(
            "store_uncertain",
            "The gateway's store failed, and again while it undid what it had begun to write: it is not stored now, "
            "but may be after a restart. Look at it again once the store works; the gateway's log says what is wrong.",
        )
    return UnwrittenError("store_full", text)
