"""The section `tools`: a tool that comes with the gateway has the settings that its plugin declares."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema, core_schema

from gateway.config.schema.section import PluginSettings, Section
from gateway.config.values.scalars import Flag, Name
from gateway.plugins import list_built_in_plugins, load_built_in_plugin


class Tool(Section):
    requires_approval: Flag = Field(default=False, description="Ask a person before every call, whatever its risk.")
    untrusted: Flag = Field(default=False, description="Third parties write its results, which taint the run.")


class PluginTool(Tool):
    """A tool under any other key, provided by a plugin: one of your own, or a built-in one under another name."""

    use: Name | None = Field(default=None, description="Name of the plugin; null: the name of the tool.")
    with_: PluginSettings = Field(
        default_factory=dict, alias="with", description="The configuration of the plugin itself."
    )


@cache
def find_built_in_settings(name: object) -> type[Tool] | None:
    """Return the settings of a tool that comes with the gateway, whose keys stand in `tools` itself.

    None: the tool does not exist, or its settings stand below `with`. Only the plugin of this name is imported.
    """
    if not isinstance(name, str) or name not in list_built_in_plugins("tools"):
        return None
    config = load_built_in_plugin("tools", name).config
    return config if issubclass(config, Tool) else None


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of the section, with its key."""

    key: str
    value: object


@dataclass(frozen=True, slots=True, eq=False)
class _ByKey:
    """The annotation of an entry: its key decides which settings it has."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def parse(entry: object, info: ValidationInfo) -> Tool:
            if not isinstance(entry, _Entry):
                return PluginTool.model_validate(entry, context=info.context)
            section = find_built_in_settings(entry.key) or PluginTool
            return section.model_validate(entry.value, context=info.context)

        schema = handler.generate_schema(PluginTool)
        return core_schema.with_info_plain_validator_function(parse, json_schema_input_schema=schema)


class ToolsSettings(Section):
    """All tools: built-in ones by their own keys, and every other key for a plugin's tool."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Tool, _ByKey()]]
    of_other_keys: ClassVar[type[Section] | None] = PluginTool

    @model_validator(mode="before")
    @classmethod
    def _add_keys(cls, tree: object) -> object:
        """Give each entry its key. A built-in tool that is null is off, and reported by `config.checks`."""
        if not isinstance(tree, dict):
            return tree
        return {
            key: _Entry(key, value) if isinstance(key, str) else value
            for key, value in tree.items()
            if value is not None or find_built_in_settings(key) is None
        }

    @classmethod
    def find_type_below(cls, key: str | int) -> type[Section] | None:
        return find_built_in_settings(key) or PluginTool

    @property
    def all(self) -> Mapping[str, Tool]:
        """Return all tools that are on, by their keys."""
        return self.__pydantic_extra__ or {}

    @property
    def built_in(self) -> Mapping[str, Tool]:
        """Return the built-in tools that are on, by name."""
        return {name: tool for name, tool in self.all.items() if not isinstance(tool, PluginTool)}

    @property
    def plugins(self) -> Mapping[str, PluginTool]:
        return {name: tool for name, tool in self.all.items() if isinstance(tool, PluginTool)}
