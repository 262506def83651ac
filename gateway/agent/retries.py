"""What becomes of a run whose upstream fails after its first round: the model is asked again, or the run is parked.

Before the first round nothing has been done, and the client itself tries again.
"""

from typing import Final

from gateway.agent.loop import Loop
from gateway.agent.progress import Progress
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.contracts.exchange import Exchange
from gateway.errors import GatewayError

#: So often a model is asked again in one round; the first pause, twice as long each time, and the longest.
TRIES: Final = 5
FIRST_S, LONGEST_S = 0.5, 8.0
#: Failures that pass: a limit, an error of the server, a connection, a silence.
_PASSING = frozenset(("upstream_limited", "upstream_error", "upstream_timeout", "upstream_unavailable"))
#: What an operator can mend, too.
_MENDED = _PASSING | {"upstream_refused"}


def pause_s(error: GatewayError, *, tries: int, left_s: float) -> float | None:
    """Returns how long to wait before the model is asked again, after so many `tries`; None: it is not.

    The upstream's own word counts. `left_s` is what the run has left of its time.
    """
    if error.code not in _PASSING or tries >= TRIES:
        return None
    wanted_s = min(FIRST_S * 2**tries, LONGEST_S) if error.retry_after_s is None else error.retry_after_s
    return wanted_s if wanted_s < left_s else None


def is_resumable(error: GatewayError, progress: Progress, loop: Loop | WorkflowLoop) -> bool:
    """Returns whether a run that this error ends between two rounds can go on later, from where it was.

    A step of a workflow says how it ended.
    """
    is_between_rounds = bool(progress.rounds) and not progress.is_open
    return is_between_rounds and isinstance(loop, Loop) and error.code in _MENDED


def parked(error: GatewayError, run: Exchange) -> GatewayError:
    """Returns what the client of a run is told that is parked: no SDK tries that again by itself."""
    text = (
        f"{_sentence(error.message)} What the tools of this run did is kept, and nothing of it runs again: send the "
        f"same request again, or 'gateway runs resume {run.id}', and it goes on from there."
    )
    return GatewayError(error.code, text).with_status(error.facts.status).after_effects()


def _sentence(text: str) -> str:
    """Returns `text` with an end: an upstream's own words often have none."""
    return text if text.endswith((".", "!", "?", "\u3002")) else f"{text}."
