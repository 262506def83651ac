"""Remarks on what is not translated."""

import pytest

from gateway.cli.litellm.remarks import collect_remarks

SECTIONS = ("router_settings", "litellm_settings", "general_settings")


@pytest.mark.parametrize(
    ("section", "name", "advice"),
    [
        ("litellm_settings", "callbacks", "`tracing` sends spans by OpenTelemetry"),
        ("litellm_settings", "max_budget", "cost_per_day and cost_per_month"),
        ("litellm_settings", "ssl_verify", "upstreams[].tls"),
        ("litellm_settings", "default_key_generate_params", "write `limits` at each key"),
        ("general_settings", "max_parallel_requests", "limits.concurrent"),
        ("router_settings", "retry_policy", "upstreams[].retry.on"),
        ("router_settings", "redis_host", "there is nothing like it"),
    ],
)
def test_untranslated_setting_gets_advice(section: str, name: str, advice: str) -> None:
    (remark,) = collect_remarks({section: {name: 1}}, SECTIONS)
    assert remark.startswith(f"{section}.{name}: ") and advice in remark


def test_translated_settings_get_no_remark() -> None:
    config = {"model_list": [], "general_settings": {"allowed_ips": []}, "router_settings": None, "odd": 1}
    assert collect_remarks(config, SECTIONS) == ["odd: there is nothing like it"]
