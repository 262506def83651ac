"""The base of all sections, and the walk along their types for error texts and the reference page."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, ClassVar, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from gateway.config.problems import KeyPath
from gateway.config.values.scalars import Name
from gateway.config.values.secret import mask


class Section(BaseModel):
    """A part of the configuration: frozen, and unknown keys are refused."""

    # defer_build: one schema is built when the root is first used, instead of one per class at import.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)
    #: The type below the keys that users name themselves, in a section that has both kinds.
    of_other_keys: ClassVar["type[Section] | None"] = None

    @classmethod
    def find_type_below(cls, key: str | int) -> "type[Section] | None":
        """Return the type below a key that is not a field of the section; None: it has none."""
        del key
        return cls.of_other_keys

    @model_validator(mode="before")
    @classmethod
    def _replace_empty(cls, tree: object) -> object:
        """Replace a null section by an empty one, as YAML reads a section of comments only."""
        if not isinstance(tree, dict):
            return tree
        collections = _list_optional_collections(cls)
        sections: dict[object, object] = {key: {} for key, is_one in collections.items() if is_one}
        return sections | {key: value for key, value in tree.items() if value is not None or key not in collections}


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """The annotation of a plugin's own configuration: any content, with hidden texts masked when it is printed."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return {
            **handler(source),
            "serialization": core_schema.plain_serializer_function_ser_schema(mask, when_used="json"),
        }


PluginSettings = Annotated[Mapping[str, object], Free()]


class PluginUse(Section):
    """A plugin by the name of its file, with its options."""

    use: Name = Field(description="Name of the plugin, which is also the name of its file.")
    with_: PluginSettings = Field(default_factory=dict, alias="with", description="Settings of the plugin.")


@cache
def _list_optional_collections(section: type[Section]) -> dict[str, bool]:
    """Return the optional keys of `section` with a list or a section that cannot be null. True: a section."""
    return {
        field.alias or name: is_section(strip(field.annotation))
        for name, field in section.model_fields.items()
        if not field.is_required() and not accepts_null(field.annotation) and is_collection(field.annotation)
    }


def accepts_null(annotation: object) -> bool:
    return NoneType in get_args(annotation)


def strip(annotation: object) -> object:
    """Return the type itself, without `Annotated[...]` and `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            annotation = next(part for part in get_args(annotation) if part is not NoneType)
        else:
            return annotation


def is_section(annotation: object) -> TypeGuard[type[Section]]:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def is_collection(annotation: object) -> bool:
    inner = strip(annotation)
    return is_section(inner) or get_origin(inner) in (Mapping, tuple)


def find_child_type(annotation: object, segment: str | int) -> object | None:
    """Return the type at `segment` below a value of type `annotation`, or None if it is not known."""
    inner = strip(annotation)
    if is_section(inner):
        for name, field in inner.model_fields.items():
            if segment == (field.alias or name):
                return field.annotation
        return inner.find_type_below(segment)
    if get_origin(inner) is Mapping:
        value: object = get_args(inner)[1]
        return value
    if get_origin(inner) is tuple:
        item: object = get_args(inner)[0]
        return item
    return None


def find_type(root: object, path: KeyPath) -> object | None:
    """Return the type at `path` below a value of type `root`. None: no such key, or free-form."""
    annotation: object | None = root
    for segment in path:
        if annotation is None:
            return None
        annotation = find_child_type(annotation, segment)
    return annotation
