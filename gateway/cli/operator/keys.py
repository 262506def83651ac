"""`gateway keys`: makes, lists, rotates and revokes keys on a running gateway, or in its store before there are any."""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from gateway.aio.clock import SystemClock
from gateway.auth.issuing import IssuedKey, KeyIssuer
from gateway.auth.key_policy import parse_terms
from gateway.auth.key_view import build_key_view, build_new_key_view
from gateway.cli.commands import (
    CommandError,
    Commands,
    WrongUsage,
    add_group,
    add_printing,
    list_own_arguments,
    load_configuration,
)
from gateway.cli.formatting import View, format_time, format_word, list_lines
from gateway.cli.operator.arguments import URL_HELP, add_asking, add_json_option, build_remote
from gateway.cli.operator.remote import Remote
from gateway.config import LoadedConfig
from gateway.config.values.units import parse_duration
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.keys import KeyStore
from gateway.contracts.storage.store import StoreError
from gateway.contracts.times import resolve_time
from gateway.contracts.views import dump_view
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import build_store
from gateway.server.store.clock import StoreClock

PATH: Final = ("context", "keys")
T = TypeVar("T")


def add(commands: Commands) -> None:
    """Add `gateway keys` and the commands below it."""
    group = add_group(commands, "keys", "make keys of a running gateway, list, rotate and revoke them")
    p = add_printing(
        group,
        "create",
        _create,
        "make a key; its text is shown this once",
        example="gateway keys create ci --scopes passthrough,context --expires 90d",
    )
    p.add_argument("name", metavar="NAME", help="name in logs and lists")
    p.add_argument("--scopes", required=True, metavar="SCOPE,...", help="actions that it allows, such as context,tools")
    p.add_argument("--expires", type=_parse_end, metavar="WHEN", help="in so long (24h, 30d), or 2027-01-31T23:59:59Z")
    p.add_argument("--approvals", metavar="MODE", help="how its requests wait for an approval: turn, hold or reject")
    for option, text in (
        ("model", "name or glob of a model that it may use"),
        ("tool", "name or glob of a tool that it may use over MCP"),
        ("upstream", "name of an upstream that its requests may go to"),
        ("network", "network from which it may be used, such as 10.0.0.0/8"),
    ):
        p.add_argument(f"--{option}", dest=f"{option}s", action="append", metavar=option.upper(), help=f"{text}; again")
    p.add_argument(
        "--metadata", action="append", type=_parse_pair, metavar="NAME=TEXT", help="text that lists show; again"
    )
    p.add_argument("--tenant", metavar="NAME", help="with --store: the tenant (default: the name of the key)")
    _add_location_options(p)
    p = add_asking(
        group, "list", list_keys, "list the keys of your tenant, the newest first", example="gateway keys list"
    )
    add_json_option(p)
    p = add_asking(group, "show", show_key, "show a key", example="gateway keys show key_5c0c2f6d1a4b8e9f01234567")
    p.add_argument("id", metavar="ID", help="id of a key: key_...")
    add_json_option(p)
    p = add_printing(
        group,
        "rotate",
        _rotate,
        "make a key in the place of another one; its text is shown this once",
        example="gateway keys rotate key_5c0c2f6d1a4b8e9f01234567 --grace 1h",
    )
    p.add_argument("id", metavar="ID", help="id of the key to replace: key_...")
    p.add_argument(
        "--grace", metavar="TIME", help="how long the old one stays valid, such as 1h (default: as configured)"
    )
    _add_location_options(p)
    p = add_printing(
        group,
        "revoke",
        _revoke,
        "revoke keys: they open nothing any more",
        example="gateway keys revoke key_5c0c2f6d1a4b8e9f01234567",
    )
    p.add_argument("ids", nargs="+", metavar="ID", help="id of a key: key_...")
    _add_location_options(p, prints=False)


def _add_location_options(parser: argparse.ArgumentParser, *, prints: bool = True) -> None:
    """Add the options that say where the keys are."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--url", help=URL_HELP)
    way.add_argument(
        "--store", action="store_true", help="in the configured store itself, whether or not a gateway runs"
    )
    if prints:
        add_json_option(parser)


def _create(args: argparse.Namespace) -> Iterator[str]:
    wanted = list_own_arguments(args)
    as_json, store = wanted.pop("as_json"), wanted.pop("store")
    if wanted["tenant"] is not None and not store:
        raise WrongUsage("--tenant goes with --store: a key makes keys of its own tenant only")
    body = {
        **{name: value for name, value in wanted.items() if value is not None},
        "scopes": [scope.strip() for scope in args.scopes.split(",") if scope.strip()],
        **({} if args.metadata is None else {"metadata": dict(args.metadata)}),
    }
    if not store:
        return create_key(build_remote(args), body, as_json=as_json)
    return _format_issued_key(
        _run_on_store(args, lambda issuer, _: issuer.create(parse_terms(body), by=None, via="cli")), as_json
    )


def _rotate(args: argparse.Namespace) -> Iterator[str]:
    if not args.store:
        return rotate_key(build_remote(args), args.id, grace=args.grace, as_json=args.as_json)
    try:
        grace_s = None if args.grace is None else parse_duration(args.grace)
    except ValueError as error:
        raise WrongUsage(f"--grace: {error}") from None

    async def rotate(issuer: KeyIssuer, store: KeyStore) -> IssuedKey:
        tenant = await _get_tenant(store, args.id)
        return await issuer.rotate(args.id, tenant=tenant, grace_s=grace_s, by=None, via="cli")

    return _format_issued_key(_run_on_store(args, rotate), args.as_json)


def _revoke(args: argparse.Namespace) -> Iterator[str]:
    if not args.store:
        return revoke_keys(build_remote(args), args.ids)

    async def revoke(issuer: KeyIssuer, store: KeyStore) -> list[str]:
        lines = []
        for key_id in args.ids:
            tenant = await _get_tenant(store, key_id)
            key = await issuer.revoke(key_id, tenant=tenant, by=None, via="cli")
            lines.append(f"{key_id}  revoked")
            while key.rotated_from is not None and (older := await store.get_key(key.rotated_from, tenant=tenant)):
                key, view = older, dump_view(build_key_view(older, now_s=time.time()))
                if view["state"] == "valid":
                    lines.append(_describe_valid_key(key.id, format_word(view, "expires")))
        return lines

    return iter(_run_on_store(args, revoke))


def create_key(remote: Remote, terms: Mapping[str, object], *, as_json: bool) -> Iterator[str]:
    """Make a key and yield its lines. Raises RemoteError."""
    return _format_key(remote.post(*PATH, **terms), as_json)


def rotate_key(remote: Remote, key_id: str, *, grace: str | None, as_json: bool) -> Iterator[str]:
    """Make a key in the place of another one and yield its lines. Raises RemoteError."""
    return _format_key(remote.post(*PATH, key_id, "rotate", grace=grace), as_json)


def revoke_keys(remote: Remote, ids: Sequence[str]) -> Iterator[str]:
    """Revoke keys and yield a line for each, and one for an older key of its name that is still valid.

    Raises RemoteError behind what was done with the others.
    """
    for line in remote.delete_each(((*PATH, each) for each in ids), done="revoked"):
        yield line
        view = remote.get(*PATH, line.partition(" ")[0])
        while view.get("rotated_from") is not None:
            view = remote.get(*PATH, format_word(view, "rotated_from"))
            if view.get("state") == "valid":
                yield _describe_valid_key(format_word(view, "id"), format_word(view, "expires"))


def list_keys(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Return the lines of the keys of a tenant. Raises RemoteError."""
    return list_lines(remote.iterate_entries(*PATH), _format_summary, as_json=as_json)


def show_key(remote: Remote, *, id: str, as_json: bool) -> Iterator[str]:  # noqa: A002 - as the argument is called
    """Return the lines of a key. Raises RemoteError."""
    return _format_key(remote.get(*PATH, id), as_json)


def _format_summary(view: View) -> Iterator[str]:
    used = f", used {format_time(view, 'used_at')}" if view.get("used_at") is not None else ""
    ends = (
        f", until {format_word(view, 'expires')}"
        if view.get("expires") is not None and view.get("state") == "valid"
        else ""
    )
    where = (
        "configured"
        if view.get("origin") == "configuration"
        else f"{format_word(view, 'hint')}, by {format_word(view, 'created_by')}"
    )
    scopes = ",".join(map(str, view.get("scopes", ())))
    yield (
        f"{format_word(view, 'id')}  {format_word(view, 'state')}{ends}  {format_word(view, 'name')} ({where})  "
        f"{scopes}{used}"
    )


def _format_key(view: View, as_json: bool) -> Iterator[str]:
    if as_json:
        yield json.dumps(view)
        return
    if view.get("key") is not None:
        yield f"key         {format_word(view, 'key')}"
        yield "            (shown this once: the store does not keep it)"
    for name in ("id", "name", "tenant", "state"):
        yield f"{name:10}  {format_word(view, name)}"
    for name in ("scopes", "models", "tools", "upstreams", "networks"):
        if view.get(name):
            yield f"{name:10}  {', '.join(format_word({'': each}, '') for each in view[name])}"
    for name in ("approvals", "expires", "rotated_from"):
        if view.get(name) is not None:
            yield f"{name:10}  {format_word(view, name)}"
    for name, text in (view.get("metadata") or {}).items():
        yield f"{'metadata':10}  {format_word({'': name}, '')}={format_word({'': text}, '')}"
    yield f"{'created':10}  {format_time(view, 'created_at')} by {format_word(view, 'created_by')}"
    if view.get("revoked_at") is not None:
        yield f"{'revoked':10}  {format_time(view, 'revoked_at')} by {format_word(view, 'revoked_by')}"
    if view.get("used_at") is not None:
        yield f"{'used':10}  {format_time(view, 'used_at')}"


def _describe_valid_key(key_id: str, until: str) -> str:
    return f"{key_id}  is still valid until {until}: the key of this name before its rotation; revoke it as well"


def _format_issued_key(issued: IssuedKey, as_json: bool) -> Iterator[str]:
    view = build_new_key_view(issued.key, issued.text, now_s=issued.key.created_s)
    return _format_key(dump_view(view), as_json)


def _run_on_store(args: argparse.Namespace, work: Callable[[KeyIssuer, KeyStore], Awaitable[T]]) -> T:
    """Return the result of work on the configured store. Raises CommandError."""
    loaded = load_configuration(args, checked=False)
    try:
        return asyncio.run(_run_with_store(loaded, work))
    except GatewayError as error:
        raise CommandError(f"{error.param}: {error.message}" if error.param else error.message) from None
    except (PluginProblem, StoreError) as error:
        raise CommandError(f"the store cannot be used: {error}") from None


async def _run_with_store(loaded: LoadedConfig, work: Callable[[KeyIssuer, KeyStore], Awaitable[T]]) -> T:
    store = build_store(loaded.settings, folder=loaded.folder)
    try:
        await store.open()
        clock = StoreClock(SystemClock())
        await clock.read_store_time(store)
        issuer = KeyIssuer(store, settings=lambda: loaded.settings, clock=clock)
        return await work(issuer, store)
    finally:
        await store.close()


async def _get_tenant(store: KeyStore, key_id: str) -> str:
    """Return the tenant of a key, which its id names alone. Raises CommandError."""
    tenant = next((key.tenant for key in await store.list_keys_in_use() if key.id == key_id), None)
    if tenant is None:
        raise CommandError(f"{key_id}: the store has no key with this id, or it is revoked")
    return tenant


def _parse_end(text: str) -> str:
    """Parse the end of a key: a time, or how long it lasts from now on."""
    try:
        return resolve_time(text, now_s=time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError("expected NAME=TEXT")
    return name, value
