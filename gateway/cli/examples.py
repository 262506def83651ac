"""One example for each command of `gateway`, below its `--help`."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, str]] = {
    "run": "gateway run --port 9000 --upstream https://api.openai.com/v1",
    "init": "gateway init -c gateway.yaml",
    "check-config": "gateway check-config -c /etc/gateway/gateway.yaml",
    "version": "gateway version",
    "help": "gateway help approvals approve",
    "completion": "gateway completion bash > ~/.local/share/bash-completion/completions/gateway",
    "selftest": "gateway selftest",
    "healthcheck": "gateway healthcheck --url http://127.0.0.1:8080 --timeout 1",
    "explain": 'gateway explain "What is in list.txt?"',
    "scan": "gateway scan < answers.jsonl",
    "assess": "gateway assess --profile hardened < calls.jsonl",
    "approvals list": "gateway approvals list --status all",
    "approvals show": "gateway approvals show ap_phbncb5zya53cy3kkvsphejot4",
    "approvals approve": "gateway approvals approve ap_phbncb5zya53cy3kkvsphejot4 --remember conversation",
    "approvals reject": 'gateway approvals reject ap_phbncb5zya53cy3kkvsphejot4 --reason "not on Fridays"',
    "approvals grants": "gateway approvals grants --json",
    "approvals asks": "gateway approvals asks",
    "approvals revoke": "gateway approvals revoke grant_2f7c9d",
    "runs list": "gateway runs list --state unknown",
    "runs show": "gateway runs show run_ba53f7371e66ef81f1043a38",
    "runs resume": 'gateway runs resume run_ba53f7371e66ef81f1043a38 --step 0 --as done --result "wrote it"',
    "runs cancel": "gateway runs cancel run_ba53f7371e66ef81f1043a38",
    "workflows list": "gateway workflows list",
    "workflows show": "gateway workflows show summarise",
    "workflows run": 'gateway workflows run summarise title=Notes text="The safe is behind the mirror."',
    "memories list": "gateway memories list --user anna",
    "memories delete": "gateway memories delete --user anna --all",
    "mcp list": "gateway mcp list",
    "mcp add": 'gateway mcp add time --command "uvx mcp-server-time" --keyword timezone',
    "mcp start": "gateway mcp start time",
    "mcp stop": "gateway mcp stop time",
    "mcp restart": "gateway mcp restart time",
    "mcp tools": "gateway mcp tools time",
    "mcp accept": "gateway mcp accept time convert_time",
    "mcp remove": "gateway mcp remove time",
    "audit verify": "gateway audit verify",
    "audit list": "gateway audit list",
    "backup": "gateway backup /var/backups/gateway.db",
    "plugin new": "gateway plugin new stages polite",
}


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Put the example of each command below its help."""
    for path, command in leaves(parser):
        if (example := EXAMPLES.get(" ".join(path))) is not None:
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            command.epilog = f"example:\n  {example}"


def leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield the commands that do something, each with its words behind `gateway`."""
    below = subcommands(parser)
    if not below and path:
        yield path, parser
    for name, command in below.items():
        yield from leaves(command, (*path, name))


def subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers right below this one by their words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
