"""The command `gateway doctor`."""

import argparse
import asyncio
import dataclasses
import json
import logging
from typing import Final

from gateway.cli.commands import Commands, add_command, load_configuration, print_now
from gateway.config import LoadedConfig

_TIMEOUT_S: Final = 15.0


def add(commands: Commands) -> None:
    """Add `gateway doctor`."""
    text = "check the configuration, the machine, upstreams and MCP servers by real probes, and say what to change"
    p = add_command(commands, "doctor", _examine, text, example="gateway doctor --timeout 60")
    p.add_argument("--timeout", type=float, default=_TIMEOUT_S, metavar="S", help="seconds for a probe (default: 15)")
    p.add_argument("--json", action="store_true", help="print one JSON object for each finding")


def _examine(args: argparse.Namespace) -> int:
    """Return 0 if nothing failed, else 1. Raises ConfigError if the configuration cannot be used."""
    loaded = load_configuration(args, warned=False)
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # a finding reports it, too
    return asyncio.run(_print(loaded, timeout_s=args.timeout, as_json=args.json))


async def _print(loaded: LoadedConfig, *, timeout_s: float, as_json: bool) -> int:
    # Imported here: it builds a whole lane, and `gateway --help` only lists the commands.
    from gateway.cli.doctor.examination import examine

    counts = {"ok": 0, "warn": 0, "fail": 0}
    async for finding in examine(loaded, timeout_s=timeout_s):
        counts[finding.level] += 1
        if as_json:
            print_now(json.dumps(dataclasses.asdict(finding)) + "\n")
        else:
            print_now("".join(f"{line}\n" for line in finding.format_lines()))
    if not as_json:
        print_now(f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed\n")
    return 1 if counts["fail"] else 0
