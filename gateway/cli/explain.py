"""`gateway explain`: requests from a running gateway how it would handle a message, and shows the answer."""

import json
import re
from collections.abc import Iterator, Mapping

from gateway.cli.commands import Commands, read_input_lines
from gateway.cli.operator.arguments import add_asking
from gateway.cli.operator.remote import Remote

EXPLAIN_PATH = "/context/explain"
# What a terminal would obey instead of showing it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def add(commands: Commands) -> None:
    """Add `gateway explain`."""
    text = "show the request that a running gateway would send to the model, without sending it"
    p = add_asking(commands, "explain", explain, text, example='gateway explain "What is in list.txt?"')
    p.add_argument("text", nargs="?", default="-", metavar="TEXT", help="message of a user (default: -, read it)")
    p.add_argument("--prompt", metavar="ID", help="base prompt instead of the configured one")
    p.add_argument("--chain", metavar="NAME", help="chain instead of the configured one")


def explain(remote: Remote, *, text: str, prompt: str | None, chain: str | None) -> Iterator[str]:
    """Yield what would become of `text` as a user's message (`-`: standard input). Raises RemoteError."""
    text = "".join(read_input_lines()) if text == "-" else text
    given = {"X-Context-Prompt": prompt, "X-Context-Chain": chain}
    headers = {name: value for name, value in given.items() if value is not None}
    body = {"messages": [{"role": "user", "content": text}]}
    for line in format_explanation(remote.send_request("POST", EXPLAIN_PATH, body, headers=headers), text=text):
        yield _CONTROL.sub("\N{REPLACEMENT CHARACTER}", line)


def format_explanation(answer: Mapping[str, object], *, text: str) -> Iterator[str]:
    """Format the answer of POST /context/explain, for a person."""
    workflow = answer.get("workflow")
    if isinstance(workflow, dict):
        yield f"workflow  {workflow.get('name')}: {' > '.join(_list_texts(workflow.get('steps')))}"
        yield f"with      {json.dumps(workflow.get('parameters'), ensure_ascii=False)}"
        yield f"chain     {answer.get('chain')}, model {answer.get('model') or 'as the client names it'}"
        return
    stages = " > ".join([*_list_texts(answer.get("stages")), "model"])
    yield f"chain     {answer.get('chain')}: {stages}"
    if answer.get("task") is not None:
        yield f"task      {answer.get('task')}: a program's own request, which no stage sees"
    yield f"intent    {_format_intent(answer.get('intent'), text)}"
    yield f"prompt    {answer.get('prompt') or 'none'}"
    yield f"upstream  {answer.get('upstream')}, model {answer.get('model') or 'as the client names it'}"
    yield from _iterate_candidate_lines(answer.get("candidates"))
    yield f"tools     {', '.join(_format_tools(answer.get('tools'))) or 'none'}"
    for remark in _list_texts(answer.get("remarks")):
        yield f"remark    {remark}"
    messages = answer.get("messages")
    if not isinstance(messages, list):
        yield "messages  none: a stage answers by itself"
        return
    for message in messages:
        yield from _format_message(message if isinstance(message, dict) else {})


def _format_intent(intent: object, text: str) -> str:
    if not isinstance(intent, dict):
        return "not looked for"
    words = f"{intent.get('kind')} ({intent.get('rule')})"
    match intent.get("span"):
        case [int(start), int(end)]:
            words += f" at {text[start:end]!r}"
    if tools := _list_texts(intent.get("tools")):
        words += f", tools {', '.join(tools)}"
    return words


def _iterate_candidate_lines(candidates: object) -> Iterator[str]:
    """Yield a line with the models of an alias, and one for each model that does not get all of the request."""
    tried = (
        [f"{one.get('model')} at {one.get('upstream')}" for one in candidates] if isinstance(candidates, list) else []
    )
    if len(tried) > 1:
        yield f"tried     {', then '.join(tried)}"
    for one in candidates if isinstance(candidates, list) else ():
        if lost := _list_texts(one.get("not_sent")):
            yield f"not sent  to {one.get('model')} at {one.get('upstream')}, by its api: {', '.join(lost)}"


def _format_tools(tools: object) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        asks = ", needs approval" if tool.get("requires_approval") else ""
        yield f"{tool.get('name')} ({tool.get('category')}{asks})"


def _format_message(message: Mapping[str, object]) -> Iterator[str]:
    yield ""
    yield f"--- {message.get('role')}"
    content = message.get("content")
    yield from content.split("\n") if isinstance(content, str) else [str(content)]


def _list_texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []
