"""The judgement of one call: found, validated, judged, examined. The same for a run and a dry run."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final, TypeGuard

import orjson

from gateway.contracts.calls import Doubt, FoundCall, PlannedCall
from gateway.contracts.canonical_json import hash_definition
from gateway.contracts.errors import contained
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.templates import Values, fill_object
from gateway.contracts.tools import Binder, Examiner, ToolCall, ToolSource
from gateway.tools.catalog import Catalog, CatalogEntry
from gateway.tools.client_rights import Refusal
from gateway.tools.decision_rules import DecisionRules
from gateway.tools.gate import ABSENT, Gate, RiskClaim, take_risk_level
from gateway.tools.grants import ApprovalBinding
from gateway.tools.schema import Schemas

log = logging.getLogger("gateway")

#: How long an engine may look at one call. It runs nothing, so this is its way there, or a lock.
EXAMINE_S: Final = 3.0
_GONE = "Not run: this tool is not there, or its service is not running any more. Say so, and go on without it."
_UNKNOWN = Verdict("error", "unknown_tool", "unknown_tool")


class Judge:
    """The tools, the gate and the rules of decisions of one configuration, and whether an MCP client may still call."""

    def __init__(
        self,
        catalog: Catalog,
        gate: Gate,
        *,
        barred: Refusal = lambda _: None,
        rules: DecisionRules = DecisionRules(),  # noqa: B008 - frozen
    ) -> None:
        self.catalog = catalog
        self.gate = gate
        self.find_client_refusal = barred
        self.rules = rules
        self._schemas = Schemas()

    def plan_call(
        self, found: FoundCall, call_id: str, exchange: Exchange, *, tainted: bool, asked_for: bool
    ) -> PlannedCall:
        """Plan a call that the model requests; `asked_for`: its user wants to approve each."""
        entry = self.catalog.find(found.tool, exchange)
        if entry is None:
            if (service := self.catalog.find_stopped_service(found.tool)) is not None:
                stopped = f"Error: the service {service!r} is not running just now. Say so, and go on without it."
                return PlannedCall(_build_tool_call(found, call_id), None, _UNKNOWN, stopped)
            nearest = self.catalog.find_nearest(found.tool, exchange)
            hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
            return PlannedCall(
                _build_tool_call(found, call_id), None, _UNKNOWN, f"Error: there is no tool {found.tool!r}.{hint}"
            )
        claim = self.claim(entry, found.parameters, beside=found.beside, vouched=found.vouched)
        call = ToolCall(id=call_id, tool=entry.model_name, arguments=claim.arguments, terminate=found.terminate)
        client_asks = exchange.steering.asks_first(entry.spec.name)
        verdict = self.judge_call(
            entry, claim, tainted=tainted, asked_for=asked_for, client_asks=client_asks, doubt=found.doubt
        )
        level = _format_level(claim.risk_level)
        refusal = _format_denial(verdict)
        if verdict.basis == "malformed":
            if entry.changed:  # its definition is not accepted, so its schema is not shown
                return PlannedCall(
                    call, entry.spec, verdict, f"Error: the parameters of {entry.model_name!r} do not fit."
                )
            schema = orjson.dumps(entry.spec.parameters).decode()
            refusal = (
                f"Error: the parameters do not fit: {verdict.reason}. The schema of {entry.model_name!r}: {schema}"
            )
        return PlannedCall(call, entry.spec, verdict, refusal, level)

    async def judge_again(
        self, planned: PlannedCall, exchange: Exchange, *, tainted: bool, asked_for: bool
    ) -> PlannedCall:
        """Judge an earlier planned call again with the tool as it is now: never more freely than before.

        A call that a person must approve still needs approval. A raised risk stays raised. A refusal names the change.
        """
        entry = self.catalog.find(planned.call.tool, exchange)
        if entry is None or planned.spec is None or entry.spec.name != planned.spec.name:
            return replace(planned, refusal=_GONE)
        if (reason := self.find_client_refusal(exchange)) is not None:
            verdict = Verdict("deny", "operator", "not_allowed", reason)
            return replace(planned, spec=entry.spec, verdict=verdict, refusal=_format_denial(verdict))
        level = ABSENT if planned.risk_level is None else planned.risk_level
        claim, client_asks = RiskClaim(planned.call.arguments, level), exchange.steering.asks_first(entry.spec.name)
        verdict = self.judge_call(entry, claim, tainted=tainted, asked_for=asked_for, client_asks=client_asks)
        if verdict.decision == "error":
            refusal = f"Not run: the tool has changed, and the call does not fit it any more: {verdict.reason}"
            return replace(planned, spec=entry.spec, verdict=verdict, refusal=refusal)
        if verdict.decision != "deny" and planned.verdict.decision == "confirm":
            return replace(planned, spec=entry.spec)
        now = replace(planned, spec=entry.spec, verdict=verdict, refusal=_format_denial(verdict))
        return await self.examine_call(now, exchange)

    async def examine_call(self, planned: PlannedCall, exchange: Exchange) -> PlannedCall:
        """Return the call as it is, or with the doubt of the engine that would run it.

        The engine examines a call only if it would run because the assessor judged it harmless. Its doubt counts as
        the assessor's: `risk.default` decides.
        """
        if not planned.is_harmless or planned.refusal is not None:
            return planned
        entry = self.catalog.find(planned.call.tool, exchange)
        if entry is None or not _is_examiner(entry.source):
            return planned
        doubt = await self._examine_by_engine(entry.source, replace(planned.call, tool=entry.spec.name), exchange)
        if doubt is None:
            return planned
        verdict = self.gate.choose_default(doubt.rule, doubt.reason)
        return replace(planned, verdict=verdict, refusal=_format_denial(verdict))

    async def _examine_by_engine(self, source: Examiner, call: ToolCall, exchange: Exchange) -> Verdict | None:
        """Return why the engine of a tool would not run a call without approval; None: it would."""
        try:
            with contained(f"the engine of {call.tool!r}"):
                async with asyncio.timeout(EXAMINE_S):
                    return await source.examine(call, exchange)
        except Exception as error:  # TimeoutError, too
            log.warning("%r could not examine a call (%s): it needs a person.", call.tool, type(error).__name__)
            return Verdict("confirm", "default", "engine_failed", f"{call.tool!r} could not examine the call.")

    def claim(self, entry: CatalogEntry, arguments: Json, *, beside: object = None, vouched: bool = True) -> RiskClaim:
        """Return the arguments with the defaults of their schema, and the model's own risk level if it may have one."""
        claim = take_risk_level(arguments, entry.spec, beside=beside) if vouched else RiskClaim(arguments)
        return RiskClaim(self._schemas.fill_defaults(entry.spec, claim.arguments), claim.risk_level)

    def judge_call(
        self,
        entry: CatalogEntry,
        claim: RiskClaim,
        *,
        tainted: bool,
        asked_for: bool,
        client_asks: bool = False,
        doubt: Doubt | None = None,
    ) -> Verdict:
        """Return the verdict on a call; the schema comes before the gate."""
        if problem := self._schemas.find_problem(entry.spec, claim.arguments):
            return Verdict("error", "malformed", "schema", problem)
        return self.gate.judge(
            entry.spec,
            claim,
            tainted=tainted,
            asked_for=asked_for,
            client_asks=client_asks,
            definition_changed=entry.changed,
            doubt=doubt,
        )

    def fill_arguments(self, exchange: Exchange, tool: str, arguments: Mapping[str, object], values: Values) -> Json:
        """Return the arguments of a workflow's step; a tool with its own language inserts values as values.

        Raises ValueError, with the reason.
        """
        entry = self.catalog.find(tool, exchange)
        if entry is not None and isinstance(entry.source, Binder):
            return entry.source.bind(dict(arguments), values)
        return fill_object(arguments, values)

    def judge_edit(self, tool: str, arguments: Json) -> Verdict:
        """Return the verdict on a call whose arguments a person has put in the place of the model's."""
        entry = self.catalog.find_by_name(tool)
        if entry is None:
            return Verdict("error", "unknown_tool", "unknown_tool", f"There is no tool {tool!r} any more.")
        return self.judge_call(entry, RiskClaim(arguments), tainted=True, asked_for=False)

    def find_binding(self, tool: str) -> ApprovalBinding | None:
        """Return the binding of an approval of a call of this tool as of now; None: the tool does not exist."""
        entry = self.catalog.find_by_name(tool)
        if entry is None:
            return None
        spec = entry.spec
        policy = self.gate.hash_policy(tool) + ("+requires_approval" if spec.requires_approval else "")
        policy += self.rules.get_policy(tool)
        return ApprovalBinding(
            hash_definition(spec.name, spec.description, spec.parameters, server=spec.server), policy
        )


@cache
def _is_examiner_class(kind: type[ToolSource]) -> bool:
    return issubclass(kind, Examiner)


def _is_examiner(source: ToolSource) -> TypeGuard[Examiner]:
    """Return whether its class has the methods of an Examiner: checked once a class, which takes 40 us."""
    return _is_examiner_class(type(source))


def _format_denial(verdict: Verdict) -> str | None:
    """Return the result of a call that policy does not let run; None: it may run."""
    return f"Not run: refused by policy. {verdict.reason}" if verdict.decision == "deny" else None


def _format_level(level: object) -> str | None:
    """Return the model's risk level as text for the record, or None."""
    if level is ABSENT:
        return None
    return level if isinstance(level, str) else f"{level!r} ({type(level).__name__})"


def _build_tool_call(found: FoundCall, call_id: str) -> ToolCall:
    return ToolCall(id=call_id, tool=found.tool, arguments=found.parameters, terminate=found.terminate)
