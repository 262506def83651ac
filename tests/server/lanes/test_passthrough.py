"""Configuration becomes endpoints, routes, keys and limits, without a loss."""

import ssl
from pathlib import Path

import pytest
from certificates import Certificates

from gateway.config import ConfigError, Settings
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import parse_request_head
from gateway.lanes.router import Router
from gateway.server.lanes.passthrough import (
    ADMIN_PATHS,
    ROOT_PATHS,
    build_admin_entry,
    build_router,
    check_files,
)
from gateway.server.lanes.upstreams import build_endpoints
from gateway.telemetry.metrics import Metrics
from gateway.upstream.endpoint import Endpoint


def settings(**content: object) -> Settings:
    return Settings.model_validate(content, context={"folder": Path.cwd()})


def endpoint_of(**upstream: object) -> Endpoint:
    (only,) = settings(upstreams=[{"name": "up", **upstream}]).upstreams
    (found,) = build_endpoints(only)
    return found


def router(*, demo_url: str | None = None, **content: object) -> Router:
    return build_router(
        settings(**content), metrics=Metrics(), clock=lambda: 0.0, demo_url=demo_url, own_paths=ROOT_PATHS | ADMIN_PATHS
    )


def chosen(found: Router, target: bytes) -> tuple[str, bytes]:
    """The upstream that a target goes to, and the target that it is sent."""
    raw = b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n"
    decided = found.route(parse_request_head(raw + b"\r\n", found.limits.head), raw[:-2])
    if decided is None:
        return "own", target
    plan, _ = decided
    return plan.target.member.pool.endpoint.name, plan.target.head[0].split(b" ")[1]


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "base_path", "secure"),
    [
        ("http://a.example", "a.example", 80, b"a.example", b"", False),
        ("https://a.example/", "a.example", 443, b"a.example", b"", True),
        ("https://a.example:8443/openai/v1", "a.example", 8443, b"a.example:8443", b"/openai/v1", True),
        ("http://a.example/v1/", "a.example", 80, b"a.example", b"/v1", False),
        ("http://[::1]:11434", "::1", 11434, b"[::1]:11434", b"", False),
    ],
)
def test_base_url_maps_to_host_port_authority_and_path(
    url: str, host: str, port: int, authority: bytes, base_path: bytes, secure: bool
) -> None:
    """Default ports, IPv6, a base path without its last slash; the Host is as it was written."""
    found = endpoint_of(base_url=url)
    assert (found.host, found.port, found.authority, found.base_path) == (host, port, authority, base_path)
    assert (found.tls is not None) == secure


def test_upstream_settings_map_to_key_header_and_timeouts() -> None:
    """Key, header and times; the key is not in its repr."""
    timeouts = {"connect": "1s", "first_byte": "2s", "idle": "3s"}
    found = endpoint_of(base_url="http://x", api_key="sk-secret", auth_header="Api-Key", timeouts=timeouts)
    assert (found.api_key, found.auth_header) == (b"sk-secret", b"api-key")
    assert (found.connect_s, found.first_byte_s, found.idle_s) == (1, 2, 3)
    assert "sk-secret" not in repr(found)
    assert endpoint_of(base_url="http://x").api_key is None


def test_tls_is_verified_unless_disabled() -> None:
    """And an end without close_notify is an error, as it hides a cut."""
    tls = endpoint_of(base_url="https://x").tls
    assert tls is not None and tls.verify_mode == ssl.CERT_REQUIRED and tls.check_hostname
    assert not tls.options & ssl.OP_IGNORE_UNEXPECTED_EOF
    lax = endpoint_of(base_url="https://x", tls={"verify": False}).tls
    assert lax is not None and lax.verify_mode == ssl.CERT_NONE and not lax.check_hostname


def test_tls_server_name_is_the_host_or_the_configured_name() -> None:
    """The host, or `tls.server_name`."""
    assert endpoint_of(base_url="https://10.0.0.1").server_name == "10.0.0.1"
    assert endpoint_of(base_url="https://10.0.0.1", tls={"server_name": "a.example"}).server_name == "a.example"


def test_unusable_files_are_reported_together_with_their_places(tmp_path: Path, certificates: Certificates) -> None:
    """With their place; files that can be used are no problem."""
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    bad = {"name": "bad", "base_url": "https://x", "tls": {"ca_file": str(broken)}}
    worse = {"name": "worse", "base_url": "https://x", "tls": {"cert_file": str(broken)}}
    good = {"name": "good", "base_url": "https://x", "tls": {"ca_file": str(certificates.ca)}}
    latin = tmp_path / "latin.md"
    latin.write_bytes("Sei höflich.".encode("latin-1"))
    with pytest.raises(ConfigError) as found:
        check_files(settings(upstreams=[bad, good, worse], prompts={"de": {"file": str(latin)}}))
    lines = str(found.value).splitlines()
    assert len(lines) == 3 and "prompts.de.file" in lines[0] and "not UTF-8" in lines[0]
    assert "upstreams[0].tls" in lines[1] and "upstreams[2].tls" in lines[2]
    check_files(settings(upstreams=[good]))


def test_upstream_with_the_longest_matching_path_prefix_is_chosen() -> None:
    """Whatever the order; without paths of their own all share the passthrough prefixes, and the first gets them."""
    found = router(
        upstreams=[
            {"name": "main", "base_url": "http://main"},
            {"name": "spare", "base_url": "http://spare"},
            {"name": "images", "base_url": "http://images/api", "paths": ["/v1/images/"]},
            {"name": "ollama", "base_url": "http://ollama/v1", "paths": ["/ollama/"]},
        ]
    )
    assert chosen(found, b"/v1/models?x=%2F") == ("main", b"/v1/models?x=%2F")
    assert chosen(found, b"/v1/images/1") == ("images", b"/api/images/1")
    assert chosen(found, b"/ollama/chat") == ("ollama", b"/v1/chat")
    assert chosen(found, b"/chat/completions") == ("main", b"/v1/chat/completions")
    with pytest.raises(GatewayError, match="No route"):
        chosen(found, b"/other")


def test_our_own_pages_come_first_unless_a_prefix_covers_them() -> None:
    """`/` as a prefix takes everything, our own pages too: they can move to `admin.listen`."""
    upstream = {"name": "up", "base_url": "http://up"}
    usual, everything = router(upstreams=[upstream]), router(upstreams=[{**upstream, "paths": ["/"]}])
    assert chosen(usual, b"/metrics")[0] == chosen(usual, b"/")[0] == "own"
    assert chosen(everything, b"/")[0] == "up"


def test_without_upstreams_the_demo_model_takes_everything() -> None:
    """It is there only when nothing is configured."""
    assert chosen(router(demo_url="http://127.0.0.1:1"), b"/v1/models")[0] == "demo"
    configured = [{"name": "up", "base_url": "http://up"}]
    assert chosen(router(demo_url="http://127.0.0.1:1", upstreams=configured), b"/v1/models")[0] == "up"


def test_limit_settings_reach_the_listener_in_seconds_and_bytes() -> None:
    """All of them, in seconds and bytes."""
    limits = {
        "head": "4KiB",
        "headers": 10,
        "connections": 11,
        "concurrent": 12,
        "head_timeout": "1s",
        "body_idle": "2s",
        "body_rate": "5KiB",
        "write": "3s",
        "keepalive": "4s",
    }
    for found in (router(limits=limits), build_admin_entry(settings(limits=limits), metrics=Metrics())):
        assert (found.limits.head.bytes, found.limits.head.fields) == (4096, 10)
        assert (found.limits.connections, found.limits.concurrent) == (11, 12)
        times = found.timeouts
        assert (times.head_s, times.body_idle_s, times.write_s, times.keepalive_s) == (1, 2, 3, 4)
        assert times.body_rate == 5120


def test_the_admin_address_has_our_pages_and_nothing_else() -> None:
    """No passthrough there, whatever the configuration says."""
    found = build_admin_entry(settings(upstreams=[{"name": "up", "base_url": "http://up"}]), metrics=Metrics())
    assert {chosen(found, path)[0] for path in ADMIN_PATHS | {b"/"}} == {"own"}
    with pytest.raises(GatewayError, match="No route"):
        chosen(found, b"/v1/models")
