"""The lanes' settings from the configuration: routes, keys, limits, our own names and pages."""

import ipaddress
import ssl
import time
from collections.abc import Callable, Collection, Sequence

from gateway.approvals.webhooks import build_webhooks
from gateway.auth.host_guard import HostGuard
from gateway.auth.keyring import KeyRing, LentKeys, StoredKeys
from gateway.config import ConfigError, Problem, Settings
from gateway.config.prompts import read_prompt_texts
from gateway.contracts.tracing.tracer import Tracer
from gateway.http.request_head import HeadLimits
from gateway.lanes.classify import CONSOLE, PROMPTS, SERVICES, WORKFLOWS
from gateway.lanes.client import ClientTimeouts
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.lanes.router import AcceptLimits, Router
from gateway.lanes.routes import Route
from gateway.mcp_server.auth.protected_resource import WELL_KNOWN, list_metadata_paths
from gateway.server.feature import load_features
from gateway.server.lanes.rights import build_key_ring
from gateway.server.lanes.upstreams import build_endpoints, build_groups, list_upstreams_in_use
from gateway.telemetry.metrics import Metrics

ROOT_PATHS = frozenset((b"/", b"/openapi.json"))
ADMIN_PATHS = frozenset((b"/health/live", b"/health/ready", b"/metrics", SERVICES))
#: Ours, whatever an upstream has there.
CONTEXT_PATHS = frozenset((PROMPTS, WORKFLOWS))


def build_router(
    settings: Settings,
    *,
    metrics: Metrics,
    clock: Callable[[], float],
    demo_url: str | None,
    own_paths: Collection[bytes],
    lent: LentKeys | None = None,
    stored: StoredKeys | None = None,
    features: Sequence[PassthroughFeature] = (),
    now_s: Callable[[], float] = time.time,
    tracer: Tracer | None = None,
) -> Router:
    """Build the router of the data listener.

    `lent` are the tokens of the console, `stored` are the keys of the store, `tracer` makes traces of our own pages.

    `now_s` returns the time (Unix), at which keys end.
    """
    ours = CONTEXT_PATHS | _serve_paths(settings)
    upstreams = list_upstreams_in_use(settings, demo_url=demo_url)
    prefixes = [upstream.paths or settings.passthrough.paths for upstream in upstreams]
    by_model = [settings.passthrough.by_model and not upstream.paths for upstream in upstreams]
    routes = [Route(prefix.encode(), i, by_model[i]) for i, paths in enumerate(prefixes) for prefix in paths]
    return Router(
        routes=routes,
        groups=build_groups(upstreams, metrics=metrics, clock=clock),
        keys=build_key_ring(settings, stored=stored, lent=lent, now_s=now_s),
        metrics=metrics,
        door=build_host_guard(settings),
        own_paths=ours | {path for path in own_paths if not any(r.matches(path) for r in routes)},
        limits=_build_limits(settings),
        timeouts=_build_timeouts(settings),
        models=[one.models if by_model[i] else () for i, one in enumerate(upstreams)],
        context_upstream=next((i for i, one in enumerate(upstreams) if one.name == settings.context.upstream), None),
        features=features,
        tracer=tracer,
    )


def build_admin_entry(settings: Settings, *, metrics: Metrics) -> Router:
    """Build the router of `admin.listen`, which serves only our own pages."""
    return Router(
        routes=(),
        groups=(),
        keys=KeyRing(()),
        metrics=metrics,
        door=build_host_guard(settings),
        own_paths=list_operator_paths(settings) | {b"/"},
        limits=_build_limits(settings),
        timeouts=_build_timeouts(settings),
    )


def build_replica_entry(settings: Settings, *, metrics: Metrics, paths: Collection[bytes]) -> Router:
    """Build the router of the port for other workers, which serves only their pages."""
    return Router(
        routes=(),
        groups=(),
        keys=KeyRing(()),
        metrics=metrics,
        door=HostGuard(),
        own_paths=paths,
        limits=_build_limits(settings),
        timeouts=_build_timeouts(settings),
    )


def list_operator_paths(settings: Settings) -> frozenset[bytes]:
    """Return the paths of the pages that move to `admin.listen` where it is configured."""
    return ADMIN_PATHS | {CONSOLE} if settings.console.enabled else ADMIN_PATHS


def list_separate_paths(settings: Settings) -> Sequence[str]:
    """Return the paths at which, and below which, pages know their callers by more than keys."""
    return () if settings.mcp.serve is None else (settings.mcp.serve.path, WELL_KNOWN)


def _serve_paths(settings: Settings) -> frozenset[bytes]:
    """Return what the endpoint for MCP clients answers at: the gateway's, whatever an upstream has there."""
    if settings.mcp.serve is None:
        return frozenset()
    path = settings.mcp.serve.path
    ways = (path, f"{path}/", f"{path}/*", f"{path}/*/")  # base URLs often end with a slash
    return frozenset(one.encode() for one in (*ways, *list_metadata_paths(settings)))


def build_host_guard(settings: Settings) -> HostGuard:
    """Return our own names (listen addresses, `allowed_hosts`) and the origins that may send requests (`cors`)."""
    listens = [listen.host for listen in (settings.listen, settings.admin.listen) if listen is not None]
    named = [f"[{host}]" if ":" in host else host for host in listens if not _is_wildcard(host)]
    return HostGuard.from_hosts(
        [*named, *settings.allowed_hosts], origins=settings.cors, any_address=any(map(_is_wildcard, listens))
    )


def check_files(settings: Settings) -> None:
    """Check base prompts, TLS files, webhook secrets, and what features need.

    A reload calls it in a thread, which a file system may hold up. So the event loop reads the files again without a
    wait. Raises ConfigError for unusable files, for secrets that cannot sign, and for libraries that are missing.
    """
    problems: list[Problem] = []
    of_features = (feature.check_files for feature in load_features() if feature.check_files is not None)
    for check in (lambda settings: read_prompt_texts(settings.prompts), *of_features):
        try:
            check(settings)
        except ConfigError as error:
            problems += error.problems
    for i, upstream in enumerate(settings.upstreams):
        try:
            build_endpoints(upstream)
        except OSError as error:
            reason = (isinstance(error, ssl.SSLError) and error.reason) or error.strerror or "unusable"
            problems.append(Problem("configuration", f"upstreams[{i}].tls", f"its files cannot be used: {reason}"))
    if problems:
        raise ConfigError(tuple(problems))
    build_webhooks(settings.approvals.notify)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _build_limits(settings: Settings) -> AcceptLimits:
    limits = settings.limits
    return AcceptLimits(
        head=HeadLimits(bytes=limits.head, fields=limits.headers),
        connections=limits.connections,
        concurrent=limits.concurrent,
    )


def _build_timeouts(settings: Settings) -> ClientTimeouts:
    limits = settings.limits
    return ClientTimeouts(
        head_s=limits.head_timeout,
        body_idle_s=limits.body_idle,
        body_rate=limits.body_rate,
        write_s=limits.write,
        keepalive_s=limits.keepalive,
    )
