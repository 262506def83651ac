"""Remarks on the settings of a LiteLLM configuration that are not translated, each with what to do instead."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.approvals.escaping import escape_line

_METRICS: Final = (
    "metrics are at /metrics, `tracing` sends spans by OpenTelemetry (docs/tracing.md), and logging.access writes a "
    "line for each request"
)
_BUDGET: Final = "budgets are cost_per_day and cost_per_month, with usage.prices (docs/limits.md)"
_KEYS: Final = "write `limits` at each key (docs/keys.md, docs/limits.md)"
#: The settings that are translated.
_KNOWN: Final = frozenset(
    (
        *("model_list", "credential_list", "mcp_servers", "router_settings", "litellm_settings", "general_settings"),
        *(f"general_settings.{name}" for name in ("allowed_ips", "global_max_parallel_requests", "master_key")),
        *(
            f"router_settings.{name}"
            for name in (
                *("allowed_fails", "cooldown_time", "fallbacks", "model_group_alias", "num_retries"),
                *("routing_strategy", "timeout"),
            )
        ),
        *(
            f"litellm_settings.{name}"
            for name in (
                *("allowed_fails", "api_base", "cache", "cache_params", "cooldown_time", "drop_params", "fallbacks"),
                *("num_retries", "request_timeout", "set_verbose", "telemetry", "use_litellm_proxy"),
            )
        ),
    )
)
#: What an operator does instead, by the last part of a setting's place.
_ADVICE: Final[Mapping[str, str]] = {
    "callbacks": _METRICS,
    "success_callback": _METRICS,
    "failure_callback": _METRICS,
    "database_url": "virtual keys are not read: make new ones (gateway keys create)",
    "guardrails": "look at the stages redact_pii and block_list (docs/stages.md)",
    "environment_variables": "export them before the gateway starts",
    "include": "translate each file, and put the results together",
    "context_window_fallbacks": "no fallback follows the size of a request",
    "content_policy_fallbacks": "no fallback follows the refusal of a request",
    "max_parallel_requests": "write limits.concurrent for the gateway, or `limits` at each key (docs/limits.md)",
    "max_budget": _BUDGET,
    "budget_duration": _BUDGET,
    "default_key_generate_params": _KEYS,
    "default_internal_user_params": _KEYS,
    "upperbound_key_generate_params": _KEYS,
    "rpm": _KEYS,
    "tpm": _KEYS,
    "ssl_verify": "certificates are checked: upstreams[].tls has ca_file for an authority of your own, and verify",
    "retry_policy": "upstreams[].retry.on has the statuses that are tried again",
    "model_group_retry_policy": "upstreams[].retry.on has the statuses that are tried again",
}


def collect_remarks(config: Mapping[str, Any], sections: Sequence[str]) -> list[str]:
    """Return a line for each setting that is not translated, of the top and of these sections."""
    places = [str(name) for name in config]
    for section in sections:
        settings = config.get(section)
        places += [f"{section}.{name}" for name in settings] if isinstance(settings, dict) else []
    return [
        f"{escape_line(place)}: {_ADVICE.get(place.rpartition('.')[2], 'there is nothing like it')}"
        for place in places
        if place not in _KNOWN
    ]
