"""Upstreams from the configuration: endpoints and their pools, and the rules of each group of them."""

import ssl
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from gateway.config import Settings
from gateway.config.schema import upstreams as schema
from gateway.config.schema.upstreams import UpstreamSettings
from gateway.telemetry.metrics import Metrics
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.endpoint import ANTHROPIC, Endpoint, ModelAccess
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group, GroupRules, RetryRules
from gateway.upstream.health import HealthChecks, HealthRules
from gateway.upstream.pool import Pool
from gateway.upstream.queue import QueueRules
from gateway.upstream.tls import ResumingContext


def list_upstreams_in_use(settings: Settings, *, demo_url: str | None) -> Sequence[UpstreamSettings]:
    """Return the upstreams of a configuration; for one without any, the demo model at `demo_url`, if it runs."""
    if settings.upstreams or demo_url is None:
        return settings.upstreams
    return (UpstreamSettings(name="demo", base_url=demo_url),)


def build_groups(
    upstreams: Sequence[UpstreamSettings], *, metrics: Metrics, clock: Callable[[], float]
) -> tuple[Group, ...]:
    """Build the group of each upstream. `clock` is monotonic, in seconds. Raises OSError as `build_endpoints`."""
    groups = tuple(_build_group(upstream, metrics=metrics, clock=clock) for upstream in upstreams)
    by_name = {group.name: group for group in groups}
    for group, upstream in zip(groups, upstreams, strict=True):
        group.fallbacks = tuple(by_name[name] for name in upstream.fallback)
    return groups


def build_endpoints(upstream: UpstreamSettings) -> list[Endpoint]:
    """Return the endpoints of an upstream. Raises OSError (ssl.SSLError) if the TLS files cannot be used."""
    given = list_given_endpoints(upstream)
    tls = _build_tls_context(upstream) if any(one.url.startswith("https:") for one in given) else None
    return [_build_endpoint(upstream, one, tls) for one in given]


def list_given_endpoints(upstream: UpstreamSettings) -> Sequence[schema.EndpointSettings]:
    """Return the endpoints as configured, or the one that `base_url` is."""
    return upstream.endpoints or tuple(schema.EndpointSettings(url=url) for url in upstream.urls)


def get_endpoint_name(endpoint: schema.EndpointSettings) -> str:
    """Return the name of an endpoint in its upstream: its own, or its host and port."""
    return endpoint.name or urlsplit(endpoint.url).netloc


def _build_group(upstream: UpstreamSettings, *, metrics: Metrics, clock: Callable[[], float]) -> Group:
    rules = _build_rules(upstream)
    members = [
        Member(
            Pool(facts, clock=clock),
            name=get_endpoint_name(one),
            weight=one.weight,
            most=one.concurrent,
            models=one.models,
            breaker=rules.breaker,
        )
        for one, facts in zip(list_given_endpoints(upstream), build_endpoints(upstream), strict=True)
    ]
    group = Group(upstream.name, members, tally=metrics.get_upstream(upstream.name), clock=clock, rules=rules)
    if (health := upstream.health) is not None:
        checked = HealthRules(
            path=health.path.encode(),
            interval_s=health.interval,
            timeout_s=health.timeout,
            fall=health.fall,
            rise=health.rise,
        )
        group.checks = HealthChecks(group, checked)
    return group


def _build_rules(upstream: UpstreamSettings) -> GroupRules:
    """Return the rules of a group. Where there is another way to go, breaker and retries have defaults."""
    several = len(upstream.urls) > 1 or bool(upstream.fallback)
    breaker = upstream.breaker or (schema.BreakerSettings() if several else None)
    retry = upstream.retry or (schema.Retry() if several else None)
    queue = upstream.queue
    return GroupRules(
        balance=upstream.balance,
        breaker=BreakerRules(failures=breaker.failures, open_s=breaker.open, longest_s=breaker.longest)
        if breaker is not None and breaker.failures
        else None,
        retry=RetryRules(tries=retry.tries, part=retry.budget, on=frozenset(retry.on), body_bytes=retry.body)
        if retry is not None
        else None,
        hedge_s=upstream.hedge,
        queue=QueueRules(size=queue.size, wait_s=queue.wait) if queue is not None else None,
    )


def _build_endpoint(upstream: UpstreamSettings, given: schema.EndpointSettings, tls: ssl.SSLContext | None) -> Endpoint:
    url = urlsplit(given.url)
    secure = url.scheme == "https"
    host = url.hostname or ""
    api_key = given.api_key or upstream.api_key
    return Endpoint(
        name=upstream.name,
        host=host,
        port=url.port or (443 if secure else 80),
        authority=url.netloc.encode(),
        base_path=url.path.rstrip("/").encode(),
        api_key=api_key.reveal().encode() if api_key else None,
        auth_header=upstream.auth_header.lower().encode() if upstream.auth_header else None,
        tls=tls if secure else None,
        server_name=upstream.tls.server_name or host,
        connect_s=upstream.timeouts.connect,
        first_byte_s=upstream.timeouts.first_byte,
        idle_s=upstream.timeouts.idle,
        models=_build_model_access(upstream),
        provider=_get_provider(upstream),
    )


def _get_provider(upstream: UpstreamSettings) -> str:
    """Return the name of the provider: the configured one, or the one whose API it is."""
    is_default = "provider" not in upstream.model_fields_set
    return ANTHROPIC if is_default and upstream.api == "messages" else upstream.provider


def _build_model_access(upstream: UpstreamSettings) -> ModelAccess:
    """Return how the context lane asks the models of an upstream."""
    return ModelAccess(
        api=upstream.api,
        quirks=frozenset(upstream.quirks),
        client_ids=upstream.client_ids,
        max_tokens=upstream.messages.max_tokens,
        thinking=upstream.messages.thinking,
        prompt_caching=upstream.messages.prompt_caching,
        betas=upstream.messages.betas,
        reasoning_summary=upstream.responses.reasoning_summary,
    )


def _build_tls_context(upstream: UpstreamSettings) -> ssl.SSLContext:
    tls = upstream.tls
    context = ResumingContext(tls.ca_file)
    context.set_alpn_protocols(["http/1.1"])
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context
