"""The two ways on for a run whose upstream fails after its first round: another call of the model, or parking.

Before the first round no call has run, and the client itself tries again.
"""

from typing import Final

from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Loop
from gateway.agent.progress import RunProgress
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.contracts.errors import PASSING, GatewayError
from gateway.contracts.exchange import Exchange

#: So often a model is called again in one round; the first pause, twice as long each time, and the longest.
TRIES: Final = 5
FIRST_S, LONGEST_S = 0.5, 8.0
#: A timer may fire so much early, while the pause that an upstream requested lasts.
EARLY_S: Final = 0.005
#: Errors that pass, or that an operator can repair.
_MENDED = PASSING | {"upstream_refused"}


def get_retry_pause_s(error: GatewayError, *, tries: int, left_s: float) -> float | None:
    """Return the pause before the model is called again after `tries` tries, in seconds. None: it is not called again.

    The upstream's own pause takes precedence. `left_s` is the rest of the run's time.
    """
    if not error.passes or tries >= TRIES:
        return None
    wanted_s = min(FIRST_S * 2**tries, LONGEST_S) if error.retry_after_s is None else error.retry_after_s
    return wanted_s if wanted_s < left_s else None


def is_resumable(error: GatewayError, progress: RunProgress, loop: Loop | WorkflowLoop | CallLoop) -> bool:
    """Return whether a run that this error ends between two rounds can continue later from the same point.

    A workflow cannot: its step reports its own end.
    """
    is_between_rounds = bool(progress.rounds) and not progress.is_open
    return is_between_rounds and isinstance(loop, Loop) and error.code in _MENDED


def build_parked_error(error: GatewayError, run: Exchange) -> GatewayError:
    """Return the error of a parked run, with a status after which no SDK retries."""
    text = (
        f"{_end_sentence(error.message)} What the tools of this run did is kept, and nothing of it runs again: "
        "send the "
        f"same request again, or 'gateway runs resume {run.id}', and it goes on from there."
    )
    return GatewayError(error.code, text).with_status(error.facts.status).mark_after_effects()


def build_waiting_error(error: GatewayError) -> GatewayError:
    """Return the error for a run that waits for its client's credential, which a reader of the error may not have."""
    text = (
        f"{_end_sentence(error.message)} This run began with its client's own credential, which no other "
        "request brings. "
        "What its tools did is kept, and nothing of it runs again: it goes on once its client sends the request again."
    )
    return GatewayError(error.code, text).with_status(error.facts.status)


def _end_sentence(text: str) -> str:
    """Return `text` with a final mark: an upstream's own words often have none."""
    return text if text.endswith((".", "!", "?", "\u3002")) else f"{text}."
