"""`gateway audit`: reads the audit log out of the store's file, without writing to it, and checks its chain of hashes.

The file shows more than the gateway would: changes that bypassed the gateway are read as they stand.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.cli.commands import (
    CommandError,
    Commands,
    WrongUsage,
    add_group,
    add_printing,
    add_reading,
    load_configuration,
)
from gateway.cli.formatting import audit_line
from gateway.cli.operator.arguments import add_json_option, parse_sha256
from gateway.config import LoadedConfig
from gateway.contracts.storage.audit_chain import FIRST_HASH, verify
from gateway.contracts.storage.store import KeptLine, StoreError, StoreFile
from gateway.registry.loader import PluginProblem
from gateway.registry.stores import get_store_address

#: Lines that are in memory at once.
PAGE = 1000
#: Before the first line, even if the file was given one with a negative number.
START = -(2**63)


class AuditError(CommandError):
    """The log cannot be read, or is not as it was written."""


@dataclass(frozen=True, slots=True)
class NotedHash:
    """The hash of a line, as a person noted it elsewhere."""

    seq: int
    hash: str


def add(commands: Commands) -> None:
    """Add `gateway audit` and the commands below it."""
    group = add_group(commands, "audit", "read the audit log from the store, whether or not a gateway runs")
    p = add_printing(
        group,
        "verify",
        _verify_store,
        "check that no line of the audit log was changed or removed",
        example="gateway audit verify",
    )
    p.add_argument("--expect", type=parse_sha256, metavar="HASH", help="check that this is still the hash of line SEQ")
    p.add_argument("--at", type=int, metavar="SEQ", help="number of the line whose hash was noted down")
    p = add_reading(group, "list", _list_lines, "list the lines of the audit log", example="gateway audit list")
    p.add_argument("--after", type=int, default=0, metavar="N", help="only lines after this number")
    add_json_option(p)


def _verify_store(args: argparse.Namespace) -> Iterator[str]:
    if (args.expect is None) != (args.at is None):
        raise WrongUsage("--expect and --at go together: the hash of a line, and its number")
    noted = None if args.expect is None else NotedHash(args.at, args.expect)
    return verify_log(store_file(load_configuration(args, checked=False))[1], noted=noted)


def _list_lines(loaded: LoadedConfig, *, after: int, as_json: bool) -> Iterator[str]:
    return list_audit_lines(store_file(loaded)[1], after=after, as_json=as_json)


def store_file(loaded: LoadedConfig, *, instead: str = "ask GET /context/audit instead") -> tuple[str, StoreFile]:
    """Return the name of the store, and its reader. Raises AuditError; `instead`: the advice if there is none."""
    try:
        address = get_store_address(loaded.settings, folder=loaded.folder)
    except PluginProblem as problem:
        raise AuditError(f"{problem.message}; {instead}") from None
    if address.file is not None and not address.file.exists():
        raise AuditError(f"there is no store {str(address.file)!r} yet: name the gateway's configuration with -c")
    try:
        return address.redacted_url if address.file is None else str(address.file), address.get_reader()
    except StoreError:
        raise AuditError(f"the store cannot be read beside the gateway: {instead}") from None


def verify_log(store: StoreFile, *, noted: NotedHash | None) -> Iterator[str]:
    """Report that the log is whole, and the values to note down. Raises AuditError that names the first broken line."""
    seq, last_hash, hash_noted = 0, FIRST_HASH, None
    for page in _iterate_pages(store, after=START):
        broken = verify(page, seq=seq, previous_hash=last_hash)
        if broken is not None:
            raise AuditError(_describe_broken_line(broken, page[broken - seq - 1]))
        if noted is not None and seq < noted.seq <= page[-1][0]:
            hash_noted = page[noted.seq - seq - 1][2]
        seq, _, last_hash = page[-1]
    if noted is not None and hash_noted != noted.hash:
        raise AuditError(_describe_mismatch(noted, found=hash_noted, last=seq))
    _check_triggers(store)
    yield f"{seq} lines, none of them changed or missing"
    if noted is not None:
        yield f"line {noted.seq} is the one that was noted down"
    if seq:
        yield f"last hash {last_hash}"
        yield f"note it down elsewhere; later: gateway audit verify --expect {last_hash} --at {seq}"


def list_audit_lines(store: StoreFile, *, after: int, as_json: bool) -> Iterator[str]:
    """Return the lines after a number, in order. Raises AuditError."""
    for page in _iterate_pages(store, after=after):
        for seq, line, line_hash in page:
            view = {"seq": seq, **line, "hash": line_hash}
            yield json.dumps(view) if as_json else audit_line(view)


def _check_triggers(store: StoreFile) -> None:
    """Raise AuditError unless the log's table has the triggers that let it only grow, and no others."""
    try:
        odd = store.audit_guards()
    except StoreError as error:
        raise AuditError(str(error)) from None
    if odd:
        raise AuditError(
            f"the audit log is not guarded as the gateway guards it: {', '.join(map(repr, odd))} of its triggers "
            "missing, changed or added. The file was changed past the gateway: compare the log with a copy"
        )


def _describe_broken_line(number: int, row: KeptLine) -> str:
    seq, line, _ = row
    if seq != number:
        return f"the audit log has line {seq} where line {number} should be: lines were taken out or put in"
    return f"line {number} of the audit log is not as it was written: {audit_line({'seq': seq, **line})}"


def _describe_mismatch(noted: NotedHash, *, found: str | None, last: int) -> str:
    if found is None:
        return f"line {noted.seq} of the audit log is gone: it ends with line {last}, so its end was cut off"
    return f"line {noted.seq} of the audit log has the hash {found} now: the log was written anew up to there"


def _iterate_pages(store: StoreFile, *, after: int) -> Iterator[list[KeptLine]]:
    """Yield the log in pieces that are not empty. Raises AuditError."""
    try:
        yield from store.audit_log(after=after, size=PAGE)
    except StoreError as error:
        raise AuditError(str(error)) from None
