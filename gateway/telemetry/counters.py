"""Counts of the context lane: a closed table of names and labels, and values by label.

Labels are stages, tools, workflows, chains and closed words, all from the configuration, never text that a client sent.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.contracts.allowance import LIMITS as CALLER_LIMITS
from gateway.contracts.figures import Counted
from gateway.telemetry.metrics import DURATION_BUCKETS_S, OVERHEAD_BUCKETS_S, Histogram, MetricFacts

#: Beyond so many combinations of label values all share one, `other`. However many tools are configured, this makes at
#: most 151 + 2 x 101 + 65 + 41 x 3 + 81 + 9 + 5 + 4 + 4 + 16 x 17 + 10 x (15 + 17 + 17 + 17) + 17 x 49 + 37 series
#: beside the series of `gateway.telemetry.metrics`.
COUNTER_LIMIT, HISTOGRAM_LIMIT = 16, 9
#: Each limit of a key, a tenant, a model or an upstream.
_LIMIT_SERIES: Final = 4 * len(CALLER_LIMITS)
#: Of these there are more, or fewer.
LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "approval_links": 8,
        "guardrail_findings": 64,
        "hidden_turns": 4,
        "limit_exceeded": _LIMIT_SERIES,
        "limit_refused": _LIMIT_SERIES,
        "limit_waits": _LIMIT_SERIES,
        "model_duration_seconds": 16,
        "model_time_per_output_token_seconds": 16,
        "model_time_to_first_byte_seconds": 16,
        "tokens": 100,
        "trace_spans": 3,
        "usage_cost": 40,
        "usage_estimated": 40,
        "usage_key_requests": 150,
        "usage_key_tokens": 100,
        "usage_requests": 40,
        "usage_tokens": 80,
        "usage_undecoded": 3,
    }
)
OTHER = "other"
#: A name, and its labels with their values in the order in which they are given.
_Given: TypeAlias = tuple[str | tuple[str, str], ...]


#: By the name without `gateway_` and `_total`.
COUNTERS: Mapping[str, MetricFacts] = MappingProxyType(
    {
        "agent_parse_failures": MetricFacts("Answers of a model with a tool call that could not be read"),
        "agent_runs": MetricFacts("Agent runs by outcome", ("outcome",)),
        "approvals": MetricFacts("Approvals by what was decided, and by which way", ("decision", "via")),
        "approval_links": MetricFacts("Uses of links that decide on approvals, by what came of them", ("outcome",)),
        "hidden_turns": MetricFacts("Hidden turns of conversations, by what became of them", ("outcome",)),
        "intent": MetricFacts("Requests by recognised intent and the layer that decided", ("intent", "layer")),
        "limit_exceeded": MetricFacts("Requests over a soft limit, which refuses nothing", ("scope", "limit")),
        "limit_refused": MetricFacts("Requests that a limit refused", ("scope", "limit")),
        "limit_waits": MetricFacts("Requests that waited for more of a limit that gateways share", ("scope", "limit")),
        "mcp_forwards": MetricFacts(
            "Requests to the gateway that has an MCP session or server, by what became of them", ("kind", "outcome")
        ),
        "mcp_server_restarts": MetricFacts(
            "Times that an MCP server was started again after it had failed", ("server",)
        ),
        "model_retries": MetricFacts("Times that a run asked its model again after a failure of the upstream"),
        "notices": MetricFacts("Notices of approvals to webhooks, by what became of them", ("outcome",)),
        "guardrail_findings": MetricFacts(
            "Findings of guardrails by their stage, the rule and the mode of the stage", ("stage", "rule", "mode")
        ),
        "prompt_cache_invalidations": MetricFacts("Times that the cached prompts were dropped, by reason", ("reason",)),
        "prompt_cache_requests": MetricFacts("Enhanced prompts by cache result", ("result",)),
        "prompt_truncations": MetricFacts("Enhanced prompts in which tools were shortened or left out"),
        "doubted_calls": MetricFacts("Calls that ask because the model may only repeat or describe them", ("rule",)),
        "response_cache_requests": MetricFacts("Model calls by the result of the cache of answers", ("result",)),
        "risk_decisions": MetricFacts("Verdicts of the gate by basis", ("decision", "basis")),
        "stage_skips": MetricFacts("Failed stages that were skipped", ("stage",)),
        "late_outcomes": MetricFacts(
            "Outcomes of tool calls that came when their run belonged to another worker", ("tool",)
        ),
        "store_waits": MetricFacts("Times that a run with a question or a decision waited for the store", ("outcome",)),
        "unknown_outcomes": MetricFacts("Tool calls that were started and whose outcome is unknown", ("tool",)),
        "tokens": MetricFacts("Tokens of model calls in the context lane, by the key of the caller", ("key", "type")),
        "tool_calls": MetricFacts("Tool calls by tool and outcome", ("tool", "outcome")),
        "tool_runs": MetricFacts("Calls of MCP clients by outcome", ("outcome",)),
        "trace_spans": MetricFacts("Spans of traces, by what became of them", ("outcome",)),
        "usage_cost": MetricFacts("What the usage cost, where a price is known", ("currency", "lane", "model")),
        "usage_estimated": MetricFacts("Requests in the usage whose tokens are estimated", ("lane", "model")),
        "usage_key_requests": MetricFacts("Requests in the usage, of both lanes, by key", ("tenant", "key", "outcome")),
        "usage_key_tokens": MetricFacts("Tokens in the usage, of both lanes, by key", ("tenant", "key", "type")),
        "usage_undecoded": MetricFacts(
            "Compressed answers that could not be decoded, so that their usage is estimated", ("encoding",)
        ),
        "usage_requests": MetricFacts(
            "Finished requests, and calls of models in the context lane, in the usage", ("lane", "model", "outcome")
        ),
        "usage_tokens": MetricFacts("Tokens in the usage, of both lanes", ("lane", "model", "type")),
        "workflow_runs": MetricFacts("Runs of workflows by outcome", ("workflow", "outcome")),
    }
)
#: Seconds of one token of a stream.
TOKEN_BUCKETS_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
#: By the name without `gateway_`.
HISTOGRAMS: Mapping[str, MetricFacts] = MappingProxyType(
    {
        "agent_run_steps": MetricFacts("Tool calls of a run", bounds=(0, 1, 2, 3, 5, 8, 10, 15, 20)),
        "approval_wait_seconds": MetricFacts(
            "Time from asking a person to the decision",
            bounds=(1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400),
        ),
        "mcp_client_operation_duration_seconds": MetricFacts(
            "Time that a request to an MCP server took",
            ("mcp_method_name", "network_transport", "error_type"),
            DURATION_BUCKETS_S,
        ),
        "mcp_server_operation_duration_seconds": MetricFacts(
            "Time that a request of an MCP client took", ("mcp_method_name", "error_type"), DURATION_BUCKETS_S
        ),
        "model_duration_seconds": MetricFacts(
            "From the request sent to the end of a model's answer", ("lane", "model"), DURATION_BUCKETS_S
        ),
        "model_time_per_output_token_seconds": MetricFacts(
            "Time of each token of a stream behind its beginning", ("lane", "model"), TOKEN_BUCKETS_S
        ),
        "model_time_to_first_byte_seconds": MetricFacts(
            "From the request sent to the beginning of a model's answer", ("lane", "model"), DURATION_BUCKETS_S
        ),
        "prompt_tokens": MetricFacts(
            "Estimated tokens of enhanced prompts", bounds=(256, 1024, 2048, 4096, 8192, 16384, 32768)
        ),
        "stage_duration_seconds": MetricFacts(
            "Time that a stage itself took before its reply began", ("stage",), OVERHEAD_BUCKETS_S
        ),
        "tool_duration_seconds": MetricFacts("Time that a tool took", ("tool",), DURATION_BUCKETS_S),
    }
)
#: By the name without `_total`.
CONTEXT_FACTS: Mapping[str, MetricFacts] = MappingProxyType(
    {f"gateway_{name}": facts for name, facts in {**COUNTERS, **HISTOGRAMS}.items()}
)


class ContextCounters:
    """The counts of one process: `contracts.Counters`. A name or label that is not in the tables is a KeyError."""

    def __init__(self) -> None:
        self._counts: dict[str, defaultdict[tuple[str, ...], float]] = {name: defaultdict(int) for name in COUNTERS}
        self._histograms: dict[str, dict[tuple[str, ...], Histogram]] = {name: {} for name in HISTOGRAMS}
        # By a name and labels as they are given: counting the same again takes one look-up.
        self._bound_counts: dict[_Given, tuple[defaultdict[tuple[str, ...], float], tuple[str, ...]]] = {}
        self._bound_histograms: dict[_Given, Histogram] = {}

    def count(self, name: str, by: float = 1, /, **labels: str) -> None:
        found = self._bound_counts.get((name, *labels.items()))
        counts, values = self._bind_count(name, labels) if found is None else found
        counts[values] += by

    def observe(self, name: str, value: float, **labels: str) -> None:
        found = self._bound_histograms.get((name, *labels.items()))
        (self._bind_histogram(name, labels) if found is None else found).observe(value)

    def observe_all(self, name: str, values: Sequence[float], /, **labels: str) -> None:
        found = self._bound_histograms.get((name, *labels.items()))
        (self._bind_histogram(name, labels) if found is None else found).observe_all(values)

    def _bind_count(
        self, name: str, labels: Mapping[str, str]
    ) -> tuple[defaultdict[tuple[str, ...], float], tuple[str, ...]]:
        """Return the counts of a name, and the key of these labels in them. Remember both, but for `other`."""
        counts = self._counts[name]
        values = _choose_label_values(COUNTERS[name], labels, counts, LIMITS.get(name, COUNTER_LIMIT))
        if OTHER not in values:
            self._bound_counts[name, *labels.items()] = counts, values
        return counts, values

    def _bind_histogram(self, name: str, labels: Mapping[str, str]) -> Histogram:
        """Return the histogram of a name and labels. Remember it, but for `other`."""
        histograms, facts = self._histograms[name], HISTOGRAMS[name]
        values = _choose_label_values(facts, labels, histograms, LIMITS.get(name, HISTOGRAM_LIMIT))
        histogram = histograms.get(values)
        if histogram is None:
            histogram = histograms[values] = Histogram(facts.bounds)
        if OTHER not in values:
            self._bound_histograms[name, *labels.items()] = histogram
        return histogram

    def collect_counts(self) -> Iterator[Counted]:
        """Yield everything that was counted until now."""
        for name, counts in self._counts.items():
            family = f"gateway_{name}"
            for values, count in counts.items():
                yield (family, values), (count,)
        for name, histograms in self._histograms.items():
            family = f"gateway_{name}"
            for values, histogram in histograms.items():
                yield (family, values), histogram.read_values()


def _choose_label_values(
    facts: MetricFacts, labels: Mapping[str, str], known: Mapping[tuple[str, ...], object], limit: int
) -> tuple[str, ...]:
    """Return the values in the order of the table, or `other` for each once there are too many."""
    if len(labels) != len(facts.labels):
        raise KeyError(f"the labels are {facts.labels}, not {tuple(labels)}")
    values = tuple(map(labels.__getitem__, facts.labels))
    return values if values in known or len(known) < limit else (OTHER,) * len(values)
