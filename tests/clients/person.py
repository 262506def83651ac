"""What models want of people and people decide, apart from the client: the words, the gateway that asks, the answer."""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.cli.operator.remote import Remote
from tests.clients.conftest import running
from tests.clients.in_thread import InThread
from tests.clients.lane import KEEPALIVE_S, Lane, configuration, shop

Json = dict[str, Any]
Read = TypeVar("Read")

#: How the client waits, if it says so.
HOLD: Final = {"X-Context-Approvals": "hold"}
TURN: Final = {"X-Context-Approvals": "turn"}
#: What a client is told in the end of an insertion.
DONE: Final = (
    'Demo model: round 1 of tool calls is done. The result: {"columns":[],"rows":[],"truncated":false,"changed":1}'
)
REJECTED: Final = "The call of `execute_sql` was rejected, because: `Not today`. Nothing ran."
#: What the demo model makes of a rejection: it reaches the model where a Responses request names tools of the gateway.
ANSWERED_REJECTION: Final = (
    "Demo model: round 1 of tool calls is done. The result: Not run: a person rejected this call."
)
ANSWERED_REASON: Final = f"{ANSWERED_REJECTION} They say: Not today"
#: For so long streams are held, and people look for a question.
PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.01


@contextmanager
def asking(
    provider: InThread,
    folder: Path,
    *,
    keepalive_s: float = KEEPALIVE_S,
    inline_wait_s: float = PATIENCE_S,
    key: str | None = None,
    **settings: object,
) -> Iterator[Lane]:
    """The lane of a gateway with two tools that change something; streams are held for `inline_wait_s`.

    `key` is that of its people. `settings` are further sections of its configuration, or replace those that it has.
    """
    database = shop(folder)
    (folder / "work").mkdir()
    tools = {
        "file_operations": {"roots": [str(folder / "work")], "write": True},
        "execute_sql": {"url": f"sqlite:///{database}", "read_only": False},
    }
    config = json.loads(configuration(provider.base_url, tools=tools, keepalive_s=keepalive_s))
    approvals = {"approvals": {"inline_wait": f"{inline_wait_s}s"}}
    with running(json.dumps({**config, **approvals, **settings})) as process:
        yield Lane(f"{process.base_url}/context", database, key)


def behind_question(text: str) -> str:
    """What a held answer says once it is decided; the question is its beginning."""
    question, _, rest = text.partition(": reason`.")
    assert question.count("gateway approvals approve ap_") == 1, text
    return rest.removeprefix("\n\n")


def insertion(name: str) -> str:
    """The words for a call that needs a person."""
    return "tool execute_sql " + json.dumps({"sql": f"INSERT INTO log VALUES ('{name}', $step)"})


def writing(name: str) -> str:
    """The same of a file."""
    return "tool file_operations " + json.dumps({"operation": "write", "path": f"{name}.txt", "content": name})


def written(lane: Lane, name: str) -> Path:
    return lane.database.with_name("work") / f"{name}.txt"


def approvals(lane: Lane) -> Remote:
    return Remote(lane.root.removesuffix("/context"), lane.key)


def read_until(read: Callable[[], Read], accepts: Callable[[Read], bool], *, patience_s: float = PATIENCE_S) -> Read:
    """What `read()` returns, as soon as it is accepted. It reads from another process, which announces nothing."""
    give_up_s = time.monotonic() + patience_s
    while not accepts(found := read()):
        assert time.monotonic() < give_up_s, found
        time.sleep(_POLL_S)
    return found


def asked_about(lane: Lane, name: str) -> list[Json]:
    """All approvals of calls with this name in them."""
    found: Any = approvals(lane).get("context", "approvals", limit=200)["data"]
    return [approval for approval in found if re.search(rf"\b{name}\b", json.dumps(approval["arguments"]))]


def pending(lane: Lane, name: str) -> Json:
    """The one question about this name, once it is there, as answers to clients have it; nothing has run by then."""
    asked = read_until(lambda: asked_about(lane, name), lambda found: any(one["state"] == "pending" for one in found))
    [approval] = [one for one in asked if one["state"] == "pending"]
    assert lane.count(name) == 0 and not written(lane, name).exists()
    assert (approval["assigned_to"], approval["notes"]) == (None, [])
    return {key: value for key, value in approval.items() if key not in ("assigned_to", "notes")}


def line(approval: Json, verb: str = "approve") -> str:
    """The line that the answer shows for this question."""
    return f"{verb} {approval['id']} {approval['check_word']}"


def decide(lane: Lane, name: str, decision: str) -> Json:
    """By REST."""
    reason = "Not today" if decision == "reject" else None
    return approvals(lane).post("context", "approvals", pending(lane, name)["id"], decision=decision, reason=reason)


@contextmanager
def person(lane: Lane, name: str, decision: str) -> Iterator[None]:
    """Decides as soon as they are asked."""
    with ThreadPoolExecutor(1) as thread:
        decided = thread.submit(decide, lane, name, decision)
        yield
        decided.result()


def ended(lane: Lane, name: str, decision: str) -> None:
    """There was one question, and what was decided became of it, once."""
    [approval] = asked_about(lane, name)
    assert approval["state"] == ("done" if decision == "approve" else "rejected"), approval
    assert lane.count(name) == (decision == "approve")


def until_running(lane: Lane, service: str, *, patience_s: float = PATIENCE_S) -> None:
    """The MCP service of this name runs."""
    here = approvals(lane)
    read_until(lambda: here.get("mcp", "services", service), lambda it: it["state"] == "running", patience_s=patience_s)


def until(lane: Lane, name: str, state: str) -> None:
    """The run about this name is in this state."""
    [approval] = asked_about(lane, name)
    read_until(lambda: approvals(lane).get("context", "runs", approval["run_id"]), lambda run: run["state"] == state)
