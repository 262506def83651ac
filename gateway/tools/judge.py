"""What is to happen with one call: found, validated, judged. The same for a run and a dry run."""

import orjson

from gateway.contracts import Exchange, Json, ToolCall, Verdict
from gateway.runs.desk import Binding
from gateway.runs.loop import Planned
from gateway.tools.catalog import Catalog, Entry
from gateway.tools.gate import Asked, Gate, take_risk_level
from gateway.tools.schema import Schemas
from gateway.wire.canonical import definition_sha256
from gateway.wire.scanner import FoundCall

_UNKNOWN = Verdict("error", "unknown_tool", "unknown_tool")


class Judge:
    """The tools and the gate of one configuration."""

    def __init__(self, catalog: Catalog, gate: Gate) -> None:
        self.catalog = catalog
        self.gate = gate
        self._schemas = Schemas()

    def plan(self, found: FoundCall, call_id: str, exchange: Exchange, *, tainted: bool, asked_for: bool) -> Planned:
        """What becomes of a call that the model asks for; `asked_for`: its user wants to be asked before each."""
        entry = self.catalog.find(found.tool, exchange)
        if entry is None:
            if (service := self.catalog.not_running(found.tool)) is not None:
                stopped = f"Error: the service {service!r} is not running just now. Say so, and go on without it."
                return Planned(_call(found, call_id), None, _UNKNOWN, stopped)
            nearest = self.catalog.nearest(found.tool, exchange)
            hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
            return Planned(_call(found, call_id), None, _UNKNOWN, f"Error: there is no tool {found.tool!r}.{hint}")
        asked = take_risk_level(found.parameters, entry.spec)
        call = ToolCall(id=call_id, tool=entry.model_name, arguments=asked.arguments, terminate=found.terminate)
        verdict = self.verdict(entry, asked, tainted=tainted, asked_for=asked_for)
        refusal: str | None = None
        if verdict.basis == "malformed":
            schema = orjson.dumps(entry.spec.parameters).decode()
            refusal = (
                f"Error: the parameters do not fit: {verdict.reason}. The schema of {entry.model_name!r}: {schema}"
            )
        elif verdict.decision == "deny":
            refusal = f"Not run: refused by policy. {verdict.reason}"
        return Planned(call, entry.spec, verdict, refusal)

    def verdict(self, entry: Entry, asked: Asked, *, tainted: bool, asked_for: bool) -> Verdict:
        """The schema comes before the gate."""
        if problem := self._schemas.problem(entry.spec, asked.arguments):
            return Verdict("error", "malformed", "schema", problem)
        return self.gate.judge(
            entry.spec, asked, tainted=tainted, asked_for=asked_for, definition_changed=entry.changed
        )

    def edited(self, tool: str, arguments: Json) -> Verdict:
        """The verdict on a call whose arguments a person has put in the place of the model's."""
        entry = self.catalog.named(tool)
        if entry is None:
            return Verdict("error", "unknown_tool", "unknown_tool", f"There is no tool {tool!r} any more.")
        return self.verdict(entry, Asked(arguments), tainted=True, asked_for=False)

    def binding(self, tool: str) -> Binding | None:
        """What an approval of a call of this tool is bound to now; None: there is no such tool."""
        entry = self.catalog.named(tool)
        if entry is None:
            return None
        spec = entry.spec
        policy = self.gate.policy_hash(tool) + ("+requires_approval" if spec.requires_approval else "")
        return Binding(definition_sha256(spec.name, spec.description, spec.parameters), policy)


def _call(found: FoundCall, call_id: str) -> ToolCall:
    return ToolCall(id=call_id, tool=found.tool, arguments=found.parameters, terminate=found.terminate)
