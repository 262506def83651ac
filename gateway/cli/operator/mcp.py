"""`gateway mcp`: lists the MCP services of a running gateway, registers them, stops and starts them; and serves them.

Texts of a server are escaped: no terminal obeys them.
"""

import argparse
import asyncio
import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.approvals.escaping import escape_line, format_shown_name
from gateway.cli.commands import CommandError, Commands, add_command, add_group, load_configuration
from gateway.cli.formatting import View, format_word, list_lines, list_views
from gateway.cli.operator.arguments import add_asking, add_json_option, read_json_file
from gateway.cli.operator.remote import Remote, check_key, find_given_key
from gateway.config import Address
from gateway.mcp.schemas.differences import describe_differences
from gateway.server.sockets import choose_reachable_host

PATH: Final = ("mcp", "services")
_LINE_CHARS = 200
_VALUE_CHARS = 2000
# As long as an error of a service is, with the last line of its program.
_ERROR_CHARS = 500
#: How long a service that is starting is waited for, and how often it is looked at, in seconds.
_START_S: Final = 30.0
_AGAIN_S: Final = 0.2
#: The endpoint of a gateway whose configuration is not at hand.
_ENDPOINT = "/mcp"


def add(commands: Commands) -> None:
    """Add `gateway mcp` and the commands below it."""
    group = add_group(commands, "mcp", "list the MCP services, register them, stop and start them")
    asking = partial(add_asking, group, admin=True)
    add_json_option(asking("list", list_services, "list the services and their states", example="gateway mcp list"))
    example = 'gateway mcp add time --command "uvx mcp-server-time" --keyword timezone'
    _add_arguments_of_new(asking("add", add_with_options, "register a service; it starts at once", example=example))
    for name, text in (("start", "start a service"), ("stop", "stop a service"), ("restart", "restart a service")):
        p = asking(name, control_service, text, example=f"gateway mcp {name} time")
        p.add_argument("name", metavar="NAME", help="name of a service")
        p.set_defaults(what=name)
    p = asking("tools", iterate_tools, "list the tools of a running service", example="gateway mcp tools time")
    p.add_argument("name", metavar="NAME", help="name of a service")
    add_json_option(p)
    text, example = "accept changed tools as they are now", "gateway mcp accept time convert_time"
    p = asking("accept", accept_tools, text, example=example)
    p.add_argument("name", metavar="NAME", help="name of a service")
    p.add_argument("wanted", nargs="*", metavar="TOOL", help="only these (default: all that changed)")
    text, example = "stop a registered service and remove it", "gateway mcp remove time"
    p = asking("remove", remove_service, text, example=example)
    p.add_argument("name", metavar="NAME", help="name of a service")
    p = add_command(
        group,
        "serve",
        serve,
        "relay between an MCP client that starts this command and a gateway",
        example="gateway mcp serve --stdio --url http://127.0.0.1:8080",
    )
    p.add_argument("--stdio", action="store_true", required=True, help="over standard input and output")
    text = (
        "the gateway's address, or that of its endpoint such as http://127.0.0.1:8080/mcp/git (default: as configured)"
    )
    p.add_argument("--url", help=f"{text}; its key: GATEWAY_API_KEY")


def _add_arguments_of_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name for the service")
    way = parser.add_mutually_exclusive_group()
    text = "program and arguments of a stdio server"
    way.add_argument("--command", dest="line", type=_split_words, metavar="LINE", help=text)
    way.add_argument("--server-url", dest="server", metavar="URL", help="address of a streamable HTTP server")
    for flag, what in (("--env", "environment variable of the program"), ("--header", "header for the URL")):
        text = f"{what}; without =VALUE it is read from the environment of this command"
        parser.add_argument(flag, type=_parse_secret, action="append", default=[], metavar="NAME=VALUE", help=text)
    parser.add_argument("--description", metavar="TEXT", help="one sentence for prompts (default: the name)")
    parser.add_argument("--keyword", action="append", metavar="WORD", help="word of a user that means this service")
    parser.add_argument("--timeout", metavar="TIME", help="longest run of one of its tools, such as 30s")
    text = "further settings: a JSON object"
    parser.add_argument("--settings", type=read_json_file, default={}, metavar="FILE", help=text)


def serve(args: argparse.Namespace) -> int:
    """Relay until standard input ends. Raises CommandError."""
    try:
        # Imported here: no other command needs the SDK.
        from gateway.cli.operator.mcp_bridge import relay
    except ImportError:
        raise CommandError("this command needs the MCP SDK: pip install 'twolane[mcp]'") from None
    key = find_given_key()
    check_key(key)
    asyncio.run(relay(_build_endpoint_url(args), key))
    return 0


def _build_endpoint_url(args: argparse.Namespace) -> str:
    """Return the URL of the endpoint to relay to. Raises CommandError."""
    if args.url is None:
        settings = load_configuration(args, checked=False).settings
        if settings.mcp.serve is None:
            raise CommandError("this configuration serves no MCP clients: add mcp.serve, or name a gateway with --url")
        address = Address(choose_reachable_host(settings.listen.host), settings.listen.port)
        return f"http://{address}{settings.mcp.serve.path}"
    try:
        url = urlsplit(args.url)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        usable = False
    if not usable or url.query or url.fragment or "@" in url.netloc:
        raise CommandError("--url: expected http://HOST:PORT, or the URL of the endpoint such as http://HOST:PORT/mcp")
    path = url.path.rstrip("/") or _ENDPOINT
    return f"{url.scheme}://{url.netloc}{path}"


def _split_words(text: str) -> list[str]:
    """Split a command line into its words as a shell does; no other shell syntax has a meaning here."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}".lower()) from None
    if not words:
        raise argparse.ArgumentTypeError("expected a program")
    return words


def _parse_secret(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`, or the NAME of a variable: other users see what stands on a command line."""
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name[:64]!r} is not set here: set it, or write NAME=VALUE")
    return name, value if equals else os.environ[name]


def list_services(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Return the lines of all services. Raises RemoteError."""
    return list_lines(remote.iterate_entries(*PATH), _format_summary, as_json=as_json)


def add_with_options(remote: Remote, name: str, *, settings: Mapping[str, object], **options: Any) -> Iterator[str]:
    """Add a service with the settings of a file, over which the options win. Raises RemoteError."""
    program, *arguments = options["line"] or (None,)
    given = {
        "command": program,
        "args": arguments or None,
        "url": options["server"],
        "env": dict(options["env"]) or None,
        "headers": dict(options["header"]) or None,
        "description": options["description"],
        "trigger_keywords": options["keyword"],
        "timeout": options["timeout"],
    }
    given = {setting: value for setting, value in given.items() if value is not None}
    return add_service(remote, name, settings={**settings, **given})


def add_service(remote: Remote, name: str, *, settings: Mapping[str, object]) -> Iterator[str]:
    """Add a service and yield it: it is starting. Raises RemoteError."""
    yield from _format_summary(remote.begin(*PATH, body={**settings, "name": name}, wait=True))


def control_service(remote: Remote, name: str, what: str) -> Iterator[str]:
    """Start, stop or restart a service and yield it. Raises RemoteError."""
    yield from _format_summary(remote.post(*PATH, name, what))


def iterate_tools(remote: Remote, name: str, *, as_json: bool) -> Iterator[str]:
    """Yield the tools of a service, once it has started. Raises RemoteError, and CommandError if it does not run."""
    give_up_s = time.monotonic() + _START_S
    while not (found := list_views(remote.get(*PATH, name, "tools").get("data"))):
        state = remote.get(*PATH, name)
        if state.get("state") != "starting" or time.monotonic() > give_up_s:
            _check_runs(name, state)
            break
        time.sleep(_AGAIN_S)
    if as_json:
        yield from map(json.dumps, found)
        return
    for view in found:
        yield from _format_tool(view)
    if not found:
        yield "none: the service runs, and lists no tools"


def accept_tools(remote: Remote, name: str, *, wanted: Sequence[str]) -> Iterator[str]:
    """Accept tools as they are now, these or all that changed, and yield them. Raises CommandError."""
    found = {str(view.get("name")): view for view in list_views(remote.get(*PATH, name, "tools").get("data"))}
    for tool in wanted:
        if tool not in found:
            raise CommandError(f"the service {name!r} has no tool {tool!r} just now: see gateway mcp tools {name!r}")
    chosen = {tool: view for tool, view in found.items() if tool in wanted or (not wanted and view.get("changed"))}
    if not chosen:
        yield "nothing to accept: no tool has changed"
        return
    remote.post(*PATH, name, "accept", tools={tool: view.get("sha256") for tool, view in chosen.items()})
    for view in chosen.values():
        yield from _format_tool({**view, "changed": False})


def remove_service(remote: Remote, name: str) -> Iterator[str]:
    """Remove a service. Raises RemoteError."""
    remote.delete(*PATH, name)
    yield f"{format_shown_name(name)}  removed"


def _check_runs(name: str, view: View) -> None:
    """Raise CommandError unless the service runs."""
    if view.get("state") == "running":
        return
    why = f": {escape_line(str(view['error']), _ERROR_CHARS)}" if view.get("error") else ""
    next_step = f"gateway mcp start {name!r}" if view.get("state") == "stopped" else "gateway mcp list shows its state"
    raise CommandError(f"the service {name!r} does not run (state {format_word(view, 'state')}){why}; {next_step}")


def _format_summary(view: View) -> Iterator[str]:
    count = view.get("tools")
    facts = [format_word(view, "source"), format_word(view, "transport"), f"{count} tool{'' if count == 1 else 's'}"]
    if view.get("restarts"):
        facts.append(f"restarted {format_word(view, 'restarts')} times by itself")
    yield f"{format_shown_name(str(view.get('name')))}  {format_word(view, 'state')}  {', '.join(facts)}"
    if view.get("error"):
        yield f"  {escape_line(str(view['error']), _ERROR_CHARS)}"
    changed = view.get("changed")
    if isinstance(changed, list) and changed:
        names = ", ".join(format_shown_name(str(tool)) for tool in changed)
        yield f"  not as they were accepted: {names}; gateway mcp tools, gateway mcp accept"


def _format_tool(view: View) -> Iterator[str]:
    mark = "  not as it was accepted: each call asks a person" if view.get("changed") else ""
    yield f"{format_shown_name(str(view.get('name')))}  {format_word(view, 'sha256')}{mark}"
    if view.get("description"):
        yield f"  {escape_line(str(view['description']), _LINE_CHARS)}"
    accepted = view.get("accepted")
    if isinstance(accepted, dict):
        yield from _list_differences(accepted, view)


def _list_differences(accepted: View, present: View) -> Iterator[str]:
    """Yield the lines of a changed tool's differences: the accepted definition, and the server's present one."""
    found = describe_differences(dict(accepted), dict(present))
    for one in found:
        yield f"  {escape_line(one.place, _LINE_CHARS)}"
        yield f"  - {escape_line(one.accepted, _VALUE_CHARS)}"
        yield f"  + {escape_line(one.present, _VALUE_CHARS)}"
    if not found:
        yield "  it differs only in characters that do not show, or beyond a limit"
