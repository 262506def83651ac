"""What a key may call by the configuration in use."""

from dataclasses import replace

import pytest

from gateway.contracts.caller import Caller, KeyBounds
from gateway.tools.client_rights import ClientRights, are_all_allowed

from .doubles import exchange

CALL = replace(
    exchange("here.echo"), job=replace(exchange("here.echo").job, call={"tool": "here.echo", "arguments": {}})
)
FLOW = replace(
    exchange("here.echo", "here.add"),
    job=replace(
        exchange("here.echo", "here.add").job,
        call={"tool": "workflow.twice", "arguments": {}},
        workflow={"name": "twice"},
    ),
)


def rights(*callers: Caller, served: tuple[str, ...] = (), workflows: bool = True) -> ClientRights:
    return ClientRights(
        lambda name: [one for one in callers if one.name == name], served=served, serves_workflows=workflows
    )


def caller(*scopes: str, name: str = "c", tenant: str = "t", tools: tuple[str, ...] = ()) -> Caller:
    return Caller(name, tenant, frozenset(scopes), KeyBounds(tools=tools))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (rights(caller("tools")), None),
        (rights(caller("tools", tools=("here.*",)), served=("here.echo",)), None),
        (rights(), None),
        (rights(caller(name="another")), None),
        (rights(caller("context"), caller("tools")), None),
        (rights(caller("context")), "lacks a scope"),
        (rights(caller("tools", tenant="other")), "tenant"),
        (rights(caller("tools", tools=("there.*",))), "keys[].tools"),
        (rights(caller("tools"), served=("there.*",)), "mcp.serve"),
        (rights(served=("there.*",)), "mcp.serve"),
    ],
)
def test_refusal_applies_current_scope_tenant_and_tool_rights(made: ClientRights, reason: str | None) -> None:
    """A key that is gone takes nothing along; of two keys of one name, either may have the right."""
    refusal = made.find_refusal(CALL)
    assert refusal is None if reason is None else reason in (refusal or "")


@pytest.mark.parametrize(
    ("made", "may"),
    [
        (rights(caller("tools", "context")), True),
        (rights(caller("tools")), False),
        (rights(caller("tools", "context", tools=("here.*", "workflow.*"))), True),
        (rights(caller("tools", "context", tools=("here.*",))), False),
        (rights(caller("tools", "context", tools=("here.echo", "workflow.*"))), False),
        (rights(caller("tools", "context"), workflows=False), False),
    ],
)
def test_workflow_call_requires_rights_to_all_its_tools(made: ClientRights, may: bool) -> None:
    """And the scope of workflows."""
    assert (made.find_refusal(FLOW) is None) == may


def test_chat_requests_are_not_limited_by_mcp_client_rights() -> None:
    """Their keys are looked at where they come in."""
    assert rights(caller(), served=("nothing",)).find_refusal(exchange("here.echo")) is None


def test_tool_rights_match_names_and_globs() -> None:
    """A name means itself, whatever it looks like."""
    assert (
        are_all_allowed(("a.*",), ["a.b"])
        and are_all_allowed(("a[1]",), ["a[1]"])
        and not are_all_allowed(("a.*",), ["b.a"])
    )
    assert are_all_allowed((), ["a.b"]) and not are_all_allowed(("a.*",), ["a.b", "b.a"])
