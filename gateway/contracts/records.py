"""New records and copies of records that every request has.

`dataclasses.replace` goes through all fields and calls `__init__`, which sets each field of a frozen record by a call:
15 to 23 us for an exchange, where these take one or two.
"""

from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import replace as replace

    def make(kind: Callable[P, T], *_: P.args, **values: P.kwargs) -> T: ...
else:

    def make(kind: type[T], **values: Any) -> T:
        """Return a record of this dataclass without `slots` and `__post_init__`, with these fields.

        Raises TypeError for a field that it does not have, or that is missing.
        """
        shape = _shape(kind)
        record = {**shape.defaults, **values}
        for name, make_default in shape.factories:
            if name not in values:
                record[name] = make_default()
        if not shape.required <= values.keys() or len(record) != shape.fields:
            return kind(**values)  # its error names the problem
        return _build_record(kind, record)

    def replace(record: T, /, **changes: Any) -> T:
        """Return a copy of `record`, a dataclass without `slots` and `__post_init__`, with these fields changed.

        Raises TypeError for a field that it does not have.
        """
        try:
            known = record.__dict__
        except AttributeError:
            raise TypeError(f"{type(record).__name__} is no exchange and no reply: use dataclasses.replace") from None
        values = {**known, **changes}
        if len(values) != len(known):
            unknown = next(name for name in changes if name not in known)
            raise TypeError(f"{type(record).__name__} has no field {unknown!r}")
        return _build_record(type(record), values)

    def _build_record(kind: type[T], values: dict[str, Any]) -> T:
        record = object.__new__(kind)
        object.__setattr__(record, "__dict__", values)
        return record

    class _Shape:
        """The fields of a dataclass: how many there are, which must be given, and what the others are else."""

        def __init__(self, kind: type) -> None:
            self.fields = len(fields(kind))
            self.factories = [(f.name, f.default_factory) for f in fields(kind) if f.default_factory is not MISSING]
            self.defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
            self.required = frozenset(f.name for f in fields(kind)) - {*self.defaults, *dict(self.factories)}

    _shape = cache(_Shape)
