"""Requests whose answer was a question, by what makes two requests the same: who repeats one is brought its answer."""

from typing import Final

#: So many are known in a worker; the oldest are forgotten first.
KEPT: Final = 10_000


class Waiting:
    """The runs that ask, by the fingerprints of the requests that they answer."""

    def __init__(self) -> None:
        self._run_ids: dict[str, str] = {}

    def note(self, fingerprint: str, run_id: str) -> None:
        """The request was answered with a question of this run."""
        self._run_ids.pop(fingerprint, None)
        self._run_ids[fingerprint] = run_id
        if len(self._run_ids) > KEPT:
            del self._run_ids[next(iter(self._run_ids))]

    def find(self, fingerprint: str) -> str | None:
        """Returns the id of the run whose question a request like this was answered with; None: there is none."""
        return self._run_ids.get(fingerprint)

    def forget(self, fingerprint: str) -> None:
        """The answer was brought: the same request begins anew."""
        self._run_ids.pop(fingerprint, None)
