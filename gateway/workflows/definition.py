"""The definition of a workflow in its file: typed parameters, and steps in order without branches."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.scalars import Flag, Label, Text, build_text_parser
from gateway.config.values.value import JsonObject, ValueType

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")


_parse_name = build_text_parser(_NAME, "expected 1 to 64 of a-z, 0-9, '_' and '-', beginning with a letter")
WorkflowName = Annotated[str, ValueType(kind="name", parse=_parse_name)]


class WorkflowParameter(Section):
    """One parameter that a user gives a workflow."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] = Field(
        default="string", description="JSON type of the value."
    )
    required: Flag = Field(default=False, description="Refuse to start the workflow without it.")
    default: object = Field(default=None, description="Value if the user gives none; null: the parameter is absent.")
    description: Text | None = Field(default=None, description="One sentence for the form.")
    enum: tuple[object, ...] | None = Field(default=None, description="Values to choose from.")

    def build_schema(self, name: str) -> JsonObject:
        """Return the JSON Schema (draft 2020-12) of the parameter."""
        schema: JsonObject = {"type": self.type, "title": name.replace("_", " ").replace("-", " ").capitalize()}
        for key, value in (("description", self.description), ("default", self.default)):
            if value is not None:
                schema[key] = value
        return schema if self.enum is None else {**schema, "enum": list(self.enum)}


class WorkflowStep(Section):
    """One step: a call of a tool, one call of the model without tools, or a text. Its result has its name."""

    name: WorkflowName = Field(description="Name of the step, and of its result for later steps.")
    tool: Text | None = Field(default=None, description="Name of the tool to call.")
    with_: Mapping[str, object] = Field(default_factory=dict, alias="with", description="Arguments of the tool.")
    model: Text | None = Field(default=None, description="Text that is sent to the model.")
    prompt: Text | None = Field(default=None, description="Text that becomes the result.")


class Workflow(Section):
    """One workflow, as its file defines it and as its runs store it."""

    name: WorkflowName = Field(description="Name of the workflow, and the word after `/` in a chat.")
    category: Label = Field(default="general", description="Group in the list of workflows.")
    description: Text = Field(description="One sentence for users.")
    parameters: Mapping[WorkflowName, WorkflowParameter] = Field(
        default_factory=dict, description="Values that users give."
    )
    steps: tuple[WorkflowStep, ...] = Field(description="Steps, in order.")

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the names of the tools that its steps call, in order."""
        return tuple(step.tool for step in self.steps if step.tool is not None)

    def build_schema(self) -> JsonObject:
        """Return the JSON Schema of its parameters, for a form and for checking them."""
        return {
            "type": "object",
            "title": self.name,
            "description": self.description,
            "properties": {name: parameter.build_schema(name) for name, parameter in self.parameters.items()},
            "required": [name for name, parameter in self.parameters.items() if parameter.required],
            "additionalProperties": False,
        }

    def build_definition(self) -> JsonObject:
        """Return the workflow as JSON; `Workflow.model_validate` turns it into a workflow again."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
