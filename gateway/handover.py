"""Hands what became of a reload to the workers: the supervisor reads and judges once, all of them use it, or none.

It stands in memory that the processes share and nothing else can open, because it holds secrets.
"""

import hashlib
import os
import pickle

from gateway.config import ConfigError, Loaded, Problem

_DIGEST_BYTES = hashlib.sha256().digest_size


class Handover:
    """Made before the workers are forked. What was given last is what is taken."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("gateway-configuration", os.MFD_CLOEXEC)

    def give(self, outcome: Loaded | ConfigError) -> None:
        """Called by the supervisor, which signals the workers afterwards."""
        content = pickle.dumps(outcome.problems if isinstance(outcome, ConfigError) else outcome)
        content = hashlib.sha256(content).digest() + content
        os.ftruncate(self._fd, 0)
        written = 0
        while written < len(content):
            written += os.pwrite(self._fd, content[written:], written)

    def take(self) -> Loaded:
        """Called by a worker. Raises ConfigError: the one that was given, or one that another reload is being written,
        for which a signal follows.
        """
        size_bytes = os.fstat(self._fd).st_size
        content = os.pread(self._fd, size_bytes, 0)
        digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            raise ConfigError((Problem("configuration", "", "another one is being read: it follows"),))
        outcome: Loaded | tuple[Problem, ...] = pickle.loads(content)  # noqa: S301  # the parent wrote it
        if isinstance(outcome, tuple):
            raise ConfigError(outcome)
        return outcome
