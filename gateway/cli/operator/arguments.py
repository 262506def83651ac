"""The commands that an operator looks after a gateway with: approvals, runs, workflows, MCP services, the audit log.

What they do is imported when they do it: `gateway run` needs no HTTP client.
"""

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from gateway import strict_json
from gateway.cli.operator.memory_arguments import add_memories
from gateway.config import Loaded
from gateway.contracts.journal import ApprovalState, RunState

if TYPE_CHECKING:
    from gateway.cli.operator.remote import Remote

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
#: What a command tells, line by line. Raises CommandError.
Lines: TypeAlias = Callable[[argparse.Namespace], Iterator[str]]

_APPROVAL_STATES, _RUN_STATES = get_args(ApprovalState), get_args(RunState)
_SHA256 = re.compile("[0-9a-f]{64}")


class OperatorCommands:
    """`add` makes the parser of a command that tells lines; `load` reads the configuration that a command names."""

    def __init__(
        self,
        add: Callable[[Commands, str, Lines, str], argparse.ArgumentParser],
        *,
        load: Callable[[argparse.Namespace], Loaded],
    ) -> None:
        self._add = add
        self._load = load

    def add_to(self, commands: Commands) -> None:
        self._add_approvals(_group(commands, "approvals", "decide on calls that wait for a person"))
        self._add_runs(_group(commands, "runs", "see what runs did, and how those go on that cannot by themselves"))
        memories = _group(commands, "memories", "see what is remembered of end users, and delete it")
        add_memories(partial(self._asking, memories), remote=self._remote, json_option=_json_option)
        self._add_workflows(_group(commands, "workflows", "see which workflows there are, and run one"))
        self._add_mcp(_group(commands, "mcp", "see which MCP services there are, register them, stop and start them"))
        self._add_audit(_group(commands, "audit", "read the audit log out of the store, whether or not a gateway runs"))

    def _add_approvals(self, commands: Commands) -> None:
        p = self._asking(commands, "list", self._list_approvals, "list what waits for a person, oldest first")
        p.add_argument(
            "--status", choices=(*_APPROVAL_STATES, "all"), default="pending", help="state (default: pending)"
        )
        _json_option(p)
        p = self._asking(commands, "show", self._show_approval, "show a call exactly as it would run")
        p.add_argument("id", metavar="ID", help="an approval's: ap_...")
        _json_option(p)
        p = self._asking(commands, "approve", self._approve, "let calls run, and their runs go on")
        p.add_argument("ids", nargs="+", metavar="ID", help="approvals; several are decided before any run goes on")
        p.add_argument("--sha256", type=_sha256, metavar="HASH", help="refuse unless the call is the one of this hash")
        p.add_argument(
            "--remember",
            choices=("once", "run", "conversation"),
            help="approve the same call again without asking, in its run or its conversation (default: once)",
        )
        p.add_argument(
            "--arguments", type=_arguments, metavar="JSON", help="run it with these; @FILE reads them from a file"
        )
        p.set_defaults(wrong_usage=p.error)
        p = self._asking(commands, "reject", self._reject, "let calls not run")
        p.add_argument("ids", nargs="+", metavar="ID", help="approvals; several are decided before any run goes on")
        p.add_argument("--reason", metavar="TEXT", help="what the run is told")
        _json_option(self._asking(commands, "grants", self._list_grants, "list approvals that are remembered"))
        text = "list conversations whose users want to be asked before each call"
        _json_option(self._asking(commands, "asks", self._list_asks, text))
        p = self._asking(commands, "revoke", self._revoke, "take back what is remembered: the next such call asks")
        p.add_argument("ids", nargs="+", metavar="ID", help="a grant's or an ask's: grant_..., ask_...")

    def _add_runs(self, commands: Commands) -> None:
        p = self._asking(commands, "list", self._list_runs, "list runs, newest first")
        p.add_argument("--state", choices=_RUN_STATES, help="only those in this state")
        p.add_argument("--conversation", metavar="ID", help="only those of this conversation")
        p.add_argument("--limit", type=_count, default=200, metavar="N", help="the newest so many (default: 200)")
        _json_option(p)
        p = self._asking(commands, "show", self._show_run, "show what a run did, call by call")
        p.add_argument("id", metavar="ID", help="a run's: run_...")
        _json_option(p)
        p = self._asking(
            commands, "resume", self._resume, "let a parked run go on; or say what became of a call that nobody knows"
        )
        p.add_argument("id", metavar="ID", help="a run's in the state awaiting_client, or unknown with --step and --as")
        p.add_argument("--step", type=int, metavar="N", help="number of the call")
        p.add_argument(
            "--as",
            dest="outcome",
            choices=("done", "retry", "failed"),
            help="done: it ran; retry: run it again; failed: go on as if it had failed",
        )
        p.add_argument("--result", metavar="TEXT", help="what the model is told of it; a stranger's words unless:")
        p.add_argument("--trusted", action="store_true", help="no stranger wrote what the model is told of it")
        p.set_defaults(wrong_usage=p.error)
        p = self._asking(commands, "cancel", self._cancel, "end a run; what it waits for is not decided any more")
        p.add_argument("id", metavar="ID", help="a run's: run_...")

    def _add_workflows(self, commands: Commands) -> None:
        p = self._asking(commands, "list", self._list_workflows, "list the workflows by category")
        _json_option(p)
        p = self._asking(commands, "show", self._show_workflow, "show what a workflow takes, and its steps")
        p.add_argument("name", metavar="NAME", help="a workflow's")
        _json_option(p)
        p = self._asking(commands, "run", self._run_workflow, "run a workflow and tell its result")
        p.add_argument("name", metavar="NAME", help="a workflow's")
        p.add_argument("parameters", nargs="*", type=_pair, metavar="KEY=VALUE", help="parameters; one may stand once")
        p.add_argument("--json", type=_json_file, default={}, metavar="FILE", help="further parameters: a JSON object")
        p.add_argument("--conversation", metavar="ID", help="the conversation that the run belongs to")
        p.add_argument("--model", metavar="NAME", help="which model its model steps ask (default: as configured)")
        p.add_argument("--async", dest="detached", action="store_true", help="tell the run's id and do not wait")
        p.set_defaults(wrong_usage=p.error)

    def _add_mcp(self, commands: Commands) -> None:
        _json_option(self._asking(commands, "list", self._list_services, "list the services and how they are"))
        p = self._asking(commands, "add", self._add_service, "register a service; it starts at once")
        p.add_argument("name", metavar="NAME", help="what it is to be called")
        way = p.add_mutually_exclusive_group()
        way.add_argument(
            "--command", dest="line", type=_words, metavar="LINE", help="program and arguments of a stdio server"
        )
        way.add_argument("--server-url", metavar="URL", help="address of a streamable HTTP server")
        for flag, what in (("--env", "environment variable of the program"), ("--header", "header for the URL")):
            text = f"{what}; without =VALUE it is read from the environment of this command"
            p.add_argument(flag, type=_secret, action="append", default=[], metavar="NAME=VALUE", help=text)
        p.add_argument("--description", metavar="TEXT", help="one sentence for prompts (default: the name)")
        p.add_argument("--keyword", action="append", metavar="WORD", help="word of a user that means this service")
        p.add_argument("--timeout", metavar="TIME", help="longest run of one of its tools, such as 30s")
        p.add_argument(
            "--settings", type=_json_file, default={}, metavar="FILE", help="further settings: a JSON object"
        )
        p.set_defaults(wrong_usage=p.error)
        for name, text in (("start", "start a service"), ("stop", "stop a service"), ("restart", "start it anew")):
            p = self._asking(commands, name, self._operate_service, text)
            p.add_argument("name", metavar="NAME", help="a service's")
            p.set_defaults(operation=name)
        p = self._asking(commands, "tools", self._list_service_tools, "list the tools of a service that runs")
        p.add_argument("name", metavar="NAME", help="a service's")
        _json_option(p)
        p = self._asking(commands, "accept", self._accept_tools, "accept tools that changed, as they are now")
        p.add_argument("name", metavar="NAME", help="a service's")
        p.add_argument("tools", nargs="*", metavar="TOOL", help="only these (default: all that changed)")
        p = self._asking(commands, "remove", self._remove_service, "stop a registered service and forget it")
        p.add_argument("name", metavar="NAME", help="a service's")

    def _add_audit(self, commands: Commands) -> None:
        p = self._add(commands, "verify", self._verify, "check that no line of the audit log was changed or taken out")
        p.add_argument("--expect", type=_sha256, metavar="HASH", help="check that this is still the hash of line SEQ")
        p.add_argument("--at", type=int, metavar="SEQ", help="number of the line whose hash was noted down")
        p.set_defaults(wrong_usage=p.error)
        p = self._add(commands, "list", self._list_audit, "list the lines of the audit log")
        p.add_argument("--after", type=int, default=0, metavar="N", help="only lines behind this one")
        _json_option(p)

    def _asking(self, commands: Commands, name: str, lines: Lines, text: str) -> argparse.ArgumentParser:
        """Return the parser of a command that asks a running gateway."""
        parser = self._add(commands, name, lines, text)
        parser.add_argument("--url", help="the gateway's address (default: as configured); its key: GATEWAY_API_KEY")
        return parser

    def _remote(self, args: argparse.Namespace, *, admin: bool = False) -> "Remote":
        from gateway.cli.operator.remote import Remote

        settings = self._load(args).settings
        listen = settings.admin.listen if admin and settings.admin.listen is not None else settings.listen
        return Remote(args.url or listen, os.environ.get("GATEWAY_API_KEY", "").strip() or None)

    # Approvals.

    def _list_approvals(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.approvals import listed

        status = None if args.status == "all" else args.status
        return listed(self._remote(args), status=status, as_json=args.json)

    def _show_approval(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.approvals import one

        return one(self._remote(args), args.id, as_json=args.json)

    def _approve(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.approvals import all_decided, decided

        of_one = {"sha256": args.sha256, "arguments": args.arguments, "remember": args.remember}
        if len(args.ids) == 1:
            return decided(self._remote(args), args.ids[0], "approve", **of_one)
        if any(value is not None for value in of_one.values()):
            args.wrong_usage("--sha256, --remember and --arguments go with one ID: approve such calls one by one")
        return all_decided(self._remote(args), args.ids, "approve")

    def _reject(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.approvals import all_decided, decided

        if len(args.ids) == 1:
            return decided(self._remote(args), args.ids[0], "reject", reason=args.reason)
        return all_decided(self._remote(args), args.ids, "reject", reason=args.reason)

    def _list_grants(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.remembered import grants

        return grants(self._remote(args), as_json=args.json)

    def _list_asks(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.remembered import asks

        return asks(self._remote(args), as_json=args.json)

    def _revoke(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.remembered import revoked

        return revoked(self._remote(args), args.ids)

    # Runs.

    def _list_runs(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.runs import listed

        which = {"state": args.state, "conversation": args.conversation, "most": args.limit}
        return listed(self._remote(args), **which, as_json=args.json)

    def _show_run(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.runs import one

        return one(self._remote(args), args.id, as_json=args.json)

    def _resume(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.runs import resumed

        if (args.step is None) != (args.outcome is None) or (args.result is not None and args.step is None):
            args.wrong_usage("--step and --as go together: the number of a call, and what became of it")
        return resumed(
            self._remote(args), args.id, step=args.step, outcome=args.outcome, result=args.result, trusted=args.trusted
        )

    def _cancel(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.runs import cancelled

        return cancelled(self._remote(args), args.id)

    # Workflows.

    def _list_workflows(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.workflows import listed

        return listed(self._remote(args), as_json=args.json)

    def _show_workflow(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.workflows import one

        return one(self._remote(args), args.name, as_json=args.json)

    def _run_workflow(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.workflows import begun

        written = dict(args.parameters)
        if len(written) < len(args.parameters):
            args.wrong_usage("a parameter is given twice")
        return begun(
            self._remote(args),
            args.name,
            written=written,
            given=args.json,
            conversation=args.conversation,
            model=args.model,
            wait=not args.detached,
        )

    # MCP services.

    def _list_services(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.mcp import listed

        return listed(self._remote(args, admin=True), as_json=args.json)

    def _add_service(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.mcp import added

        program, *arguments = args.line or (None,)
        given = {
            "command": program,
            "args": arguments or None,
            "url": args.server_url,
            "env": dict(args.env) or None,
            "headers": dict(args.header) or None,
            "description": args.description,
            "trigger_keywords": args.keyword,
            "timeout": args.timeout,
        }
        settings = args.settings | {name: value for name, value in given.items() if value is not None}
        return added(self._remote(args, admin=True), args.name, settings=settings)

    def _operate_service(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.mcp import operated

        return operated(self._remote(args, admin=True), args.name, args.operation)

    def _list_service_tools(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.mcp import tools

        return tools(self._remote(args, admin=True), args.name, as_json=args.json)

    def _accept_tools(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.mcp import accepted

        return accepted(self._remote(args, admin=True), args.name, wanted=args.tools)

    def _remove_service(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.operator.mcp import removed

        return removed(self._remote(args, admin=True), args.name)

    # The audit log.

    def _verify(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.audit import Noted, store_file, verified

        if (args.expect is None) != (args.at is None):
            args.wrong_usage("--expect and --at go together: the hash of a line, and its number")
        noted = None if args.expect is None else Noted(args.at, args.expect)
        return verified(store_file(self._load(args))[1], noted=noted)

    def _list_audit(self, args: argparse.Namespace) -> Iterator[str]:
        from gateway.cli.audit import listed, store_file

        return listed(store_file(self._load(args))[1], after=args.after, as_json=args.json)


def _group(commands: Commands, name: str, text: str) -> Commands:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for scripts: one JSON object a line")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a whole number from 1")
    return int(text)


def _sha256(text: str) -> str:
    if not _SHA256.fullmatch(text.lower()):
        raise argparse.ArgumentTypeError("expected a SHA-256: 64 hexadecimal digits")
    return text.lower()


def _arguments(text: str) -> dict[str, Any]:
    """Parse a JSON object, or `@` and the file that holds it."""
    try:
        value = strict_json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]!r} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value


def _pair(text: str) -> tuple[str, str]:
    """Parse `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected name=value, not {text[:64]!r}")
    return name, value


def _json_file(text: str) -> dict[str, Any]:
    return _arguments(f"@{text}")


def _words(text: str) -> list[str]:
    """Split a command line into its words as a shell does; no other shell syntax has a meaning here."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}".lower()) from None
    if not words:
        raise argparse.ArgumentTypeError("expected a program")
    return words


def _secret(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`, or the NAME of a variable: other users see what stands on a command line."""
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name[:64]!r} is not set here: set it, or write NAME=VALUE")
    return name, value if equals else os.environ[name]
