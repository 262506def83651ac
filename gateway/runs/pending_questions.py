"""Requests whose answer was a question, by their fingerprints: a client that repeats one gets its answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakValueDictionary

from gateway.contracts.exchange import CallProgress, CallWatcher
from gateway.contracts.storage.journal import StoredStep

#: So many are known in a worker; the oldest are forgotten first.
KEPT: Final = 10_000


class Watchers:
    """The requests of this worker that wait for one call, as one `CallWatcher`."""

    def __init__(self) -> None:
        self._each: list[CallWatcher] = []

    def on_step_begun(self, step: str, *, number: int, total: int) -> None:
        for watcher in self._each:
            watcher.on_step_begun(step, number=number, total=total)

    def report_progress(self, progress: CallProgress) -> None:
        for watcher in self._each:
            watcher.report_progress(progress)

    def report_result(self, step: StoredStep) -> None:
        for watcher in self._each:
            watcher.report_result(step)

    @contextmanager
    def attach(self, watcher: CallWatcher) -> Iterator[None]:
        """Report the progress of the call to this watcher, too, until the block ends."""
        self._each.append(watcher)
        try:
            yield
        finally:
            self._each.remove(watcher)


class PendingQuestions:
    """The runs that wait for a person, by the fingerprints of the requests that they answer."""

    def __init__(self) -> None:
        self._run_ids: dict[str, str] = {}
        self._watchers: WeakValueDictionary[str, Watchers] = WeakValueDictionary()

    def get_watchers(self, run_id: str) -> Watchers:
        """Return the requests that wait for the call that a run is, also requests that come later."""
        return self._watchers.setdefault(run_id, Watchers())

    def note_question(self, fingerprint: str, run_id: str) -> None:
        """Record that the request was answered with a question of this run."""
        self._run_ids.pop(fingerprint, None)
        self._run_ids[fingerprint] = run_id
        if len(self._run_ids) > KEPT:
            del self._run_ids[next(iter(self._run_ids))]

    def find(self, fingerprint: str) -> str | None:
        """Return the id of the run whose question answered a request like this, or None."""
        return self._run_ids.get(fingerprint)

    def remove_request(self, fingerprint: str) -> None:
        """Remove a request whose answer was delivered, so that an equal one begins a new run."""
        self._run_ids.pop(fingerprint, None)
