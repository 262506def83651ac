"""The addresses at which `bench.growth_console` looks at each page of the console."""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from bench.console_reader import request_json
from bench.console_stock import AGE_S, CALLER, LONG_CONVERSATION, RARE_CALLER, USER, Templates
from bench.grown import Client
from gateway.console.pages.runs import STATES

#: What the runs of a list have in common, each with a value that few runs have beside the other values.
_FACTS: Final[Mapping[str, str]] = {
    "state": "failed",
    "kind": "workflow",
    "caller": RARE_CALLER,
    "workflow": "flow3",
    "conversation": LONG_CONVERSATION,
}


@dataclass(frozen=True, slots=True)
class Place:
    """One address of a page, below the console's own. `name` is how the table names it."""

    name: str
    target: str


def list_page_addresses(client: Client, templates: Templates) -> Mapping[str, Sequence[Place]]:
    """Return the addresses of each page, by its path."""
    runs, approvals, memories = "/context/runs?limit=1", "/context/approvals?limit=1", f"/context/memories?user={USER}"
    pending, decided = (
        request_json(client, f"{approvals}&status={state}")["data"][0]["id"] for state in ("pending", "done")
    )
    unknown = request_json(client, f"{runs}&state=unknown")["data"][0]["id"]
    kinds = {
        "a plain run": templates.plain,
        "a run with an approval": templates.approved,
        "a run that waits": templates.pending,
        "a run of a workflow": templates.workflow,
        "an unknown outcome": unknown,
        "a run of 99 calls": templates.long,
    }
    shown = {
        "": [Place("", ""), Place("?after= (deep)", f"?after={_find_deep_approval(client)}")],
        "/live": _build_places("/live"),
        "/approvals/{id}": [
            Place("/approvals/{id} (pending)", f"/approvals/{pending}"),
            Place("/approvals/{id}?edit", f"/approvals/{pending}?edit=1"),
            Place("/approvals/{id}?as=json", f"/approvals/{pending}?as=json"),
            Place("/approvals/{id} (done)", f"/approvals/{decided}"),
        ],
        "/approvals/{id}/preview": [Place("/approvals/{id}/preview", f"/approvals/{pending}/preview")],
        "/runs": list_run_lists(client),
        "/runs/{id}": [Place(f"/runs/{{id}} ({name})", f"/runs/{run_id}") for name, run_id in kinds.items()],
        "/remembered": _build_places("/remembered"),
        "/workflows": _build_places("/workflows", "/workflows?category=category1"),
        "/workflows/{name}": [Place("/workflows/{name}", "/workflows/flow1")],
        "/playground": _build_places("/playground"),
        "/tools": _build_places("/tools"),
        "/services": _build_places("/services"),
        "/tools/new-service": _build_places("/tools/new-service"),
        "/services/{name}": [Place("/services/{name} (200 tools)", "/services/bench")],
        "/services/{name}/change": [Place("/services/{name}/change", "/services/own/change")],
        "/services/{name}/delete": [Place("/services/{name}/delete", "/services/own/delete")],
        "/prompts": _build_places("/prompts", "/prompts?after=prompt00500"),
        "/prompts/{id}": [Place("/prompts/{id}", "/prompts/prompt00001")],
        "/prompts/{id}/enhanced": [Place("/prompts/{id}/enhanced", "/prompts/prompt00001/enhanced")],
        "/memories": _build_places("/memories", f"/memories?user={USER}"),
        "/memories/delete": _build_places(f"/memories/delete?user={USER}"),
        "/status": _build_places("/status"),
        "/status/audit": _build_places("/status/audit", "/status/audit?begin=start"),
    }
    for part in ("timeline", "live", "raw"):
        name = f"/runs/{{id}}/{part}"
        shown[name] = [Place(f"{name} (99 calls)", f"/runs/{templates.long}/{part}")]
    following = request_json(client, f"{memories}&limit=200").get("next")
    if following:
        shown["/memories"] = [
            *shown["/memories"],
            Place("/memories?after=", f"/memories?user={USER}&after={following}"),
        ]
    return shown


def list_run_lists(client: Client) -> Sequence[Place]:
    """Return the addresses of the list of runs, narrowed by one fact each, or by times, or behind half of all runs."""
    deep = _find_middle_run(client)
    since_s, until_s = time.time() - AGE_S * 0.6, time.time() - AGE_S * 0.4
    wanted: list[Mapping[str, object]] = [
        {},
        {"after": deep},
        *({"state": state} for state in STATES),
        {"kind": "chat"},
        {"kind": "workflow"},
        {"caller": CALLER},
        {"caller": RARE_CALLER},
        {"caller": "nobody"},
        {"workflow": "flow3"},
        {"conversation": LONG_CONVERSATION},
        {"since": f"{since_s:.0f}", "until": f"{until_s:.0f}"},
        {"state": "completed", "after": deep},
        {"kind": "workflow", "after": deep},
        {"caller": CALLER, "after": deep},
        {"conversation": LONG_CONVERSATION, "after": deep},
    ]
    return [_list(each) for each in wanted]


def list_combinations(client: Client) -> Sequence[Place]:
    """Return the addresses of lists that are narrowed by two facts and more, from the top, and from the middle."""
    deep, times = _find_middle_run(client), {"since": f"{time.time() - AGE_S:.0f}", "until": f"{time.time():.0f}"}
    found: list[Mapping[str, object]] = []
    for count in range(2, len(_FACTS) + 1):
        found.extend(dict(chosen) for chosen in itertools.combinations(_FACTS.items(), count))
    found += [{**each, "after": deep, **times} for each in found]
    # What nobody has: a page looks at as many entries as it may.
    found += [{**each, "caller": "nobody"} for each in ({"state": state} for state in STATES)]
    found += [
        {"conversation": LONG_CONVERSATION, "caller": "nobody"},
        {"conversation": LONG_CONVERSATION, "state": "awaiting_client"},
        {"kind": "chat", "workflow": "flow3"},
        {"kind": "chat", "state": "unknown", "caller": RARE_CALLER},
        {"kind": "workflow", "state": "awaiting_approval"},
        {"kind": "workflow", "state": "running"},
        {"caller": RARE_CALLER, "state": "completed"},
        {"caller": CALLER, "state": "running"},
        {"caller": CALLER, "state": "rejected"},
    ]
    return [_list(each) for each in found]


def _list(query: Mapping[str, object]) -> Place:
    words = "&".join(
        name if name in ("after", "since", "until") else f"{name}={value}" for name, value in query.items()
    )
    return Place(f"/runs?{words}" if words else "/runs", f"/runs?{urlencode(query)}" if query else "/runs")


def _find_middle_run(client: Client) -> str:
    """Return the run in the middle of all."""
    until_s = time.time() - AGE_S / 2
    return str(request_json(client, f"/context/runs?limit=1&until={until_s:.0f}")["data"][0]["id"])


def _find_deep_approval(client: Client) -> str:
    """Return the pending approval behind which the last tenth of them comes."""
    found: list[str] = []
    after = ""
    while after is not None:
        query = f"&after={quote(after)}" if after else ""
        page = request_json(client, f"/context/approvals?status=pending&order=urgency&limit=200{query}")
        found += [approval["id"] for approval in page["data"]]
        after = page["next"]
    return found[len(found) * 9 // 10]


def _build_places(*targets: str) -> list[Place]:
    return [Place(target, target) for target in targets]
