"""Views: the JSON objects in the answers of the gateway's own pages, as structs.

The fields of a struct are the definition of its JSON: answers are written from them, and `GET /openapi.json` describes
them (gateway/api/openapi/views.py). A field is in each answer, unless its default is `UNSET`: then it may be left out.
Import this module only where answers are written, for it loads the library of structs.
"""

from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import fields

from gateway.contracts.storage.store import Json

UnixTime: TypeAlias = Annotated[float, Meta(description="Unix time, in seconds.")]
ViewT = TypeVar("ViewT", bound="View")


class View(Struct, frozen=True):
    """The base of all views."""


def fill_view(kind: type[ViewT], record: object, **given: Any) -> ViewT:
    """Return a view of a record: `given`, and for all other fields without a default the record's own values.

    A field takes the attribute of its name in Python. Its name in JSON may be another one (`msgspec.field`).
    """
    own = {name: getattr(record, name) for name in _list_required(kind) if name not in given}
    return kind(**own, **given)


def dump_view(view: View) -> Json:
    """Return the JSON object of a view."""
    content: Json = to_builtins(view, enc_hook=_to_plain_text)
    return content


@cache
def _list_required(kind: type[View]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.required)


def _to_plain_text(value: object) -> str:
    """Return a text of the configuration, which may be of a class of its own. Raises TypeError for other classes."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
