"""The machine, as far as a gateway needs it: files, address, disk, and the versions that run here."""

import http.client
import os
import platform
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from gateway import __version__
from gateway.cli.doctor.findings import Finding
from gateway.cli.operator.remote import build_connection
from gateway.config import LoadedConfig, Settings
from gateway.contracts.storage.store import StoreAddress
from gateway.registry.stores import get_store_address

#: Files beside the connections of clients: logs, stores, pipes of MCP servers.
_OTHER_FILES: Final = 200
_LITTLE_SPACE_BYTES: Final = 1 << 30
_SOON_S: Final = 14 * 86400.0
_DAY_S: Final = 86400.0
_ANSWER_S: Final = 2.0
#: The libraries whose versions a report of a defect needs.
_LIBRARIES: Final = ("aiohttp", "uvloop", "orjson", "pydantic", "mcp", "opentelemetry-sdk", "asyncpg", "valkey")


def examine_machine(loaded: LoadedConfig, *, now_s: float) -> Iterator[Finding]:
    """Yield what the machine lacks or has, without a request to another one. `now_s` is Unix time."""
    settings = loaded.settings
    yield _check_versions()
    yield _check_user()
    yield _check_descriptors(settings)
    yield _check_address(settings)
    yield from _check_disk(get_store_address(settings, folder=loaded.folder))
    yield from _check_keys(settings, now_s=now_s)


def _check_versions() -> Finding:
    found = [f"twolane {__version__}", f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for library in _LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            continue
    return Finding("ok", "versions", ", ".join(found))


def _check_user() -> Finding:
    """Say whose rights a gateway started like this has: for root the kernel counts no processes (RLIMIT_NPROC)."""
    if os.geteuid():
        return Finding("ok", "user", f"number {os.geteuid()}")
    text = "root: the kernel does not hold commands to their number of processes, the gateway ends them a moment later"
    return Finding("warn", "user", text, "run the gateway as a user of its own (deploy/README.md)")


def _check_descriptors(settings: Settings) -> Finding:
    """Compare the hard limit, which a worker raises its own to, with what full use of its connections takes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * settings.limits.connections + _OTHER_FILES
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return Finding("ok", "open files", f"{hard if hard != resource.RLIM_INFINITY else 'no limit'}, {needed} needed")
    return Finding(
        "warn",
        "open files",
        f"a worker may open {hard}, and limits.connections: {settings.limits.connections} may need {needed}",
        f"raise the limit (LimitNOFILE={needed} in a systemd unit, --ulimit nofile={needed} for a container), or set "
        f"limits.connections to {max((hard - _OTHER_FILES) // 2, 1)}",
    )


def _check_address(settings: Settings) -> Finding:
    """Say what answers at the gateway's address."""
    where = settings.admin.listen or settings.listen
    place = str(where)
    connection = build_connection(where, timeout_s=_ANSWER_S)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        status, body = answer.status, answer.read(200)
    except ConnectionRefusedError:
        return Finding("ok", f"address {place}", "nothing listens there: a gateway can start")
    except (OSError, http.client.HTTPException) as error:
        text = f"something listens there, and it is no gateway: {getattr(error, 'strerror', None) or error}"
        return Finding("fail", f"address {place}", text, "stop it, or set another `listen`")
    finally:
        connection.close()
    if status == 200 and b"ready" in body:
        return Finding("ok", f"address {place}", "a gateway answers, and is ready")
    if b'"status"' in body:
        return Finding("warn", f"address {place}", f"a gateway answers, and is not ready (status {status})")
    text = f"something else listens there: it answered {status} to /health/ready"
    return Finding("fail", f"address {place}", text, "stop it, or set another `listen`")


def _check_disk(address: StoreAddress) -> Iterator[Finding]:
    """Yield how large the store is and how much it can grow, if it is a file."""
    file: Path | None = getattr(address, "file", None)
    if file is None:
        return
    held = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*") if part.is_file())
    free = shutil.disk_usage(file.parent).free
    text = f"{held / 1e6:.1f} MB, {free / 1e9:.1f} GB free beside it"
    if free < max(_LITTLE_SPACE_BYTES, held):
        advice = "free space, or shorten what is kept (docs/operations.md): a full disk refuses requests with 507"
        yield Finding("warn", f"store {file.name}", text, advice)
    else:
        yield Finding("ok", f"store {file.name}", text if held else f"not made yet, {free / 1e9:.1f} GB free")


def _check_keys(settings: Settings, *, now_s: float) -> Iterator[Finding]:
    """Yield the keys that have ended or end soon."""
    for key in settings.keys:
        if key.expires is None or (left_s := key.expires.timestamp() - now_s) > _SOON_S:
            continue
        advice = "make another one and change `expires` (docs/keys.md)"
        if left_s <= 0:
            yield Finding("fail", f"key {key.name}", "it has ended: its clients get 401", advice)
        else:
            yield Finding("warn", f"key {key.name}", f"it ends in {left_s / _DAY_S:.0f} days", advice)
