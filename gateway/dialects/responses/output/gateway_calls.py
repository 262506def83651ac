"""Calls of the gateway's tools as items of an output: lists of tools, calls, and questions whether a call may run.

A run that goes on after a crash emits its steps again, so each call and each question is shown once.
"""

from typing import Protocol

import orjson

from gateway.contracts.storage.store import Json
from gateway.dialects.offered_tools import split_tool_name
from gateway.dialects.responses.events import ResponseEvents
from gateway.dialects.responses.output.items import GatewayCall, Item, WholeItem
from gateway.dialects.responses.response_metadata import ResponseFacts


class Items(Protocol):
    """The output that items are added to."""

    events: ResponseEvents

    def open_place(self, prefix: str) -> tuple[str, int]:
        """End the item that takes pieces. Return id and index of the item that is added next."""
        ...

    def add(self, item: Item) -> None:
        """Add an item."""
        ...

    def end_item(self, index: int) -> None:
        """Emit the event that an item is whole."""
        ...


class GatewayCalls:
    """The calls of one response. Their methods take its output and do not keep it: that would be a cycle."""

    def __init__(self, facts: ResponseFacts) -> None:
        self._calls: dict[str, GatewayCall] = {}
        self._asked: set[str] = set()
        self._listed = set(facts.listed)
        self._failed: set[str] = set()  # labels whose service did not run

    def add_event(self, event: Json, output: Items) -> None:
        """Add an event of the run to the output; events of other types are ignored."""
        match event["type"]:
            case "tools.listed":
                self._add_tool_lists(event["tools"], output)
                for failure in event.get("failed", ()):
                    self._add_list_failure(failure["service"], failure["error"], output)
            case "tool.started":
                self._get_or_add_call(event, output)
            case "tool.finished":
                self._finish_call(event, output)
            case "approval.required":
                for approval in event["approvals"]:
                    self._add_question(approval, output)

    def end(self) -> list[int]:
        """Note that nothing follows. Return the places of the calls that have no result."""
        left = [call for call in self._calls.values() if call.status == "in_progress"]
        for call in left:
            call.status = "incomplete"
        return [call.index for call in left]

    def _add_tool_lists(self, tools: list[Json], output: Items) -> None:
        """Add the tools of each label that the conversation has not listed yet."""
        by_label: dict[str, list[Json]] = {}
        for tool in tools:
            label, name = split_tool_name(tool["tool"], tool["service"])
            if label not in self._listed:
                shown = {"name": name, "description": tool["description"], "input_schema": tool["parameters"]}
                by_label.setdefault(label, []).append(shown)
        self._listed |= by_label.keys()
        for label, shown_tools in by_label.items():
            _add_list(label, {"tools": shown_tools}, "completed", output)

    def _add_list_failure(self, label: str, error: str, output: Items) -> None:
        """Add the failure to list the tools of a label."""
        if label not in self._failed:
            self._failed.add(label)
            _add_list(label, {"error": error}, "failed", output)

    def _get_or_add_call(self, event: Json, output: Items) -> GatewayCall:
        """Return the call of an event, which is added if it is new."""
        known = self._calls.get(event["call_id"])
        if known is not None:
            return known
        label, name = split_tool_name(event["tool"], event["service"])
        item_id, index = output.open_place("mcp")
        call = GatewayCall(id=item_id, index=index, label=label, name=name, approval_id=event["approval_id"])
        self._calls[event["call_id"]] = call
        output.add(call)
        place = {"item_id": call.id, "output_index": call.index}
        output.events.add("response.mcp_call.in_progress", place)
        call.arguments = event["arguments"]
        output.events.add("response.mcp_call_arguments.delta", {**place, "delta": call.arguments})
        output.events.add("response.mcp_call_arguments.done", {**place, "arguments": call.arguments})
        return call

    def _finish_call(self, event: Json, output: Items) -> None:
        """Set the result of a call that is still in progress, and add the events of its end."""
        call = self._get_or_add_call(event, output)
        if call.status != "in_progress":
            return
        call.result = event["result"]
        call.status = "completed" if event["ok"] else "failed"
        place = {"item_id": call.id, "output_index": call.index}
        output.events.add(f"response.mcp_call.{call.status}", place)
        output.end_item(call.index)

    def _add_question(self, approval: Json, output: Items) -> None:
        """Add the question about a call."""
        if approval["id"] in self._asked:
            return
        self._asked.add(approval["id"])
        tool, service, edited = approval["tool"], approval["service"], approval["edited_arguments"]
        arguments = orjson.dumps(approval["arguments"] if edited is None else edited).decode()
        item = build_question_item(approval["id"], tool=tool, service=service, arguments=arguments)
        _, index = output.open_place("ap")
        output.add(WholeItem(item))
        output.end_item(index)


def _add_list(label: str, found: Json, ended: str, output: Items) -> None:
    """Add an item with what was found of the tools of a label, and the events up to the one with this ending."""
    item_id, index = output.open_place("mcpl")
    item = WholeItem({"id": item_id, "type": "mcp_list_tools", "server_label": label, "tools": []})
    output.add(item)
    place = {"item_id": item_id, "output_index": index}
    output.events.add("response.mcp_list_tools.in_progress", place)
    output.events.add(f"response.mcp_list_tools.{ended}", place)
    item.fields = {**item.fields, **found}
    output.end_item(index)


def build_question_item(approval_id: str, *, tool: str, service: str | None, arguments: str) -> Json:
    """Return the question about a call of a tool, with its arguments as JSON. The answer names the approval."""
    label, name = split_tool_name(tool, service)
    fields = {"id": approval_id, "type": "mcp_approval_request", "server_label": label, "name": name}
    return {**fields, "arguments": arguments}
