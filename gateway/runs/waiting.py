"""Requests whose answer was a question, by their fingerprints: a client that repeats one gets its answer."""

from typing import Final

from gateway.contracts.exchange import CallWatcher

#: So many are known in a worker; the oldest are forgotten first.
KEPT: Final = 10_000


class Waiting:
    """The runs that wait for a person, by the fingerprints of the requests that they answer.

    `watchers` are requests of this worker that wait for a tool call, by its run.
    """

    def __init__(self) -> None:
        self._run_ids: dict[str, str] = {}
        self.watchers: dict[str, CallWatcher] = {}

    def note(self, fingerprint: str, run_id: str) -> None:
        """Record that the request was answered with a question of this run."""
        self._run_ids.pop(fingerprint, None)
        self._run_ids[fingerprint] = run_id
        if len(self._run_ids) > KEPT:
            del self._run_ids[next(iter(self._run_ids))]

    def find(self, fingerprint: str) -> str | None:
        """Return the id of the run whose question answered a request like this, or None."""
        return self._run_ids.get(fingerprint)

    def forget(self, fingerprint: str) -> None:
        """Forget the request, because its answer was delivered: the same request begins anew."""
        self._run_ids.pop(fingerprint, None)
