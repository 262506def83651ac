"""The shared memory that gives a reload to the workers: all of them use the new configuration, or none.

The supervisor reads and checks the configuration once.

1. It is in memory that the processes share and nothing else can open, because it holds secrets.
2. Each worker reports whether it could build the configuration. The first process that knows the outcome stores it.
   The outcome is the same for all: used if all workers could, else refused.
3. A vote that is still open when a worker is started, or when another reload comes, counts as refused. Each reload has
   a separate vote, also where it brings the same configuration as the one before.
"""

import fcntl
import hashlib
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.config import ConfigError, LoadedConfig, Problem

_DIGEST_BYTES, _NUMBER_BYTES = hashlib.sha256().digest_size, 8
_OPEN, _USED, _REFUSED = b"O", b"U", b"R"
_ABLE, _UNABLE, _SILENT = b"Y", b"N", b"-"


class Handover:
    """The memory through which workers receive a reload. Create it before the fork."""

    def __init__(self, *, workers: int) -> None:
        self._workers = workers
        self._fd = os.memfd_create("gateway-configuration", os.MFD_CLOEXEC)
        #: Digest and outcome of the last one and of the one before it, then each worker's vote on the last one.
        self._poll = os.memfd_create("gateway-agreement", os.MFD_CLOEXEC)
        os.pwrite(self._poll, (b"\0" * _DIGEST_BYTES + _REFUSED) * 2 + _SILENT * workers, 0)
        self._taken = b""
        self._given = 0

    def publish_configuration(self, outcome: LoadedConfig | ConfigError) -> None:
        """Store an outcome for the workers. Only the supervisor calls this; it signals the workers afterwards."""
        self._given += 1
        number = self._given.to_bytes(_NUMBER_BYTES)
        content = number + pickle.dumps(outcome.problems if isinstance(outcome, ConfigError) else outcome)
        digest = hashlib.sha256(content).digest()
        content = digest + content
        with self._lock_poll() as poll:
            last = self._settle_outcome(poll)
            os.pwrite(self._poll, digest + _OPEN + last + _SILENT * self._workers, 0)
        os.ftruncate(self._fd, 0)
        written = 0
        while written < len(content):
            written += os.pwrite(self._fd, content[written:], written)

    def read_configuration(self) -> LoadedConfig:
        """Return the configuration that was given last. Only workers call this.

        Raises ConfigError: the stored error, or a notice that another reload is being written. A signal follows
        that one.
        """
        size_bytes = os.fstat(self._fd).st_size
        content = os.pread(self._fd, size_bytes, 0)
        digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            raise ConfigError((Problem("configuration", "", "another one is being read: it follows"),))
        outcome: LoadedConfig | tuple[Problem, ...] = pickle.loads(content[_NUMBER_BYTES:])  # noqa: S301  # our parent's
        if isinstance(outcome, tuple):
            raise ConfigError(outcome)
        self._taken = digest
        return outcome

    def vote_on_configuration(self, index: int, *, able: bool) -> None:
        """Store whether this worker could build the configuration that it took last."""
        with self._lock_poll() as poll:
            if poll[:_DIGEST_BYTES] == self._taken:
                os.pwrite(self._poll, _ABLE if able else _UNABLE, 2 * (_DIGEST_BYTES + 1) + index)

    def is_used(self) -> bool | None:
        """Return whether all workers use the configuration that this one took last, or None while that is open."""
        with self._lock_poll() as poll:
            said = poll[2 * (_DIGEST_BYTES + 1) :]
            outcome = self._find_outcome(poll, self._taken)
            if outcome == _OPEN and (_UNABLE in said or _SILENT not in said):
                outcome = self._settle_outcome(poll)[_DIGEST_BYTES:]
        return None if outcome == _OPEN else outcome == _USED

    def close_vote(self) -> bool:
        """Close an open vote. Return whether all workers use what was given last."""
        with self._lock_poll() as poll:
            return self._settle_outcome(poll)[_DIGEST_BYTES:] == _USED

    def _settle_outcome(self, poll: bytes) -> bytes:
        """Return the digest and outcome of the last configuration. Store the outcome if it was open."""
        digest, outcome, said = (
            poll[:_DIGEST_BYTES],
            self._find_outcome(poll, poll[:_DIGEST_BYTES]),
            poll[-self._workers :],
        )
        if outcome == _OPEN:
            outcome = _USED if said == _ABLE * self._workers else _REFUSED
            os.pwrite(self._poll, outcome, _DIGEST_BYTES)
        return digest + outcome

    @staticmethod
    def _find_outcome(poll: bytes, digest: bytes) -> bytes:
        for start in (0, _DIGEST_BYTES + 1):
            end = start + _DIGEST_BYTES
            if poll[start:end] == digest:
                return poll[end : end + 1]
        return _REFUSED

    @contextmanager
    def _lock_poll(self) -> Iterator[bytes]:
        """Lock the agreement against other processes, and yield its content."""
        fcntl.lockf(self._poll, fcntl.LOCK_EX)
        try:
            yield os.pread(self._poll, 2 * (_DIGEST_BYTES + 1) + self._workers, 0)
        finally:
            fcntl.lockf(self._poll, fcntl.LOCK_UN)


async def accept_alone(able: bool) -> bool:
    """Accept a configuration if the only worker could build it."""
    return able
