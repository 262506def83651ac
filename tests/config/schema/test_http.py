"""The sections about requests."""

from gateway.config.schema.http import LimitsSettings, Passthrough


def test_request_limit_defaults_match_the_contract() -> None:
    """Seconds and bytes."""
    assert LimitsSettings().model_dump() == {
        "head": 32768,
        "headers": 256,
        "context_body": 33554432,
        "context_values": 50000,
        "connections": 10000,
        "concurrent": None,
        "head_timeout": 10.0,
        "body_idle": 60.0,
        "body_rate": 8192,
        "write": 60.0,
        "keepalive": 75.0,
        "drain": 30.0,
        "stop_delay": 0.0,
        "shared": None,
        "valkey": None,
        "valkey_file": None,
        "tenants": {},
        "models": {},
    }
    assert Passthrough().model_dump() == {"paths": ("/v1/",), "by_model": False}
