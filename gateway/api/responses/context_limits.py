"""The bounds of what one request goes on from: so many bytes (`limits.context_body`), and with its body so many values.

Values are counted where items are read anyway, and only of requests that can have too many.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.jsontext.value_count import count_values

_WAY_OUT: Final = "compact it before it is so long (POST /responses/compact), begin anew, or raise the limit."


@dataclass(slots=True, kw_only=True)
class ContextLimits:
    """The bounds of one request, and what it has of them so far.

    `own` is its body as it was read, `own_bytes` the size of that. `references` are the places and ids of items that it
    refers to, `further` the ids that it refers to in another way.
    """

    own: object
    own_bytes: int
    references: Sequence[tuple[str, str]]
    further: Sequence[str] = ()
    limit_bytes: int
    limit_values: int
    size_bytes: int = 0  # of what it goes on from
    _values: int = 0

    def expect(self, size_bytes: int, *, param: str) -> None:
        """Count bytes of items before they are read. Raises GatewayError (request_too_large)."""
        self.size_bytes += size_bytes
        if self.size_bytes > self.limit_bytes:
            raise _build_too_large_error(f"is larger than limits.context_body ({self.limit_bytes} bytes)", param)

    def read(self, parts: Iterable[Sequence[Json]], *, param: str) -> list[Json]:
        """Return the items of all parts, which are read one after the other. Raises GatewayError as `expect` does."""
        found: list[Json] = []
        for items in parts:
            self._count_item(items, param=param)
            found += items
        return found

    def refer(self, referenced: Mapping[str, Json]) -> None:
        """Count items as often as the request refers to them, by their ids. Raises GatewayError as `expect` does."""
        places = {item_id: place for place, item_id in reversed(self.references)}
        times = Counter([*(item_id for _, item_id in self.references), *self.further])
        for item_id, item in referenced.items():
            param = places.get(item_id, "input")
            self.expect(len(orjson.dumps(item)) * times[item_id], param=param)
            self._count_item([item], times=times[item_id], param=param)

    def _count_item(self, items: Sequence[Json], *, param: str, times: int = 1) -> None:
        most = self.limit_values
        if self.own_bytes + self.size_bytes <= most:  # a value takes a byte
            return
        if not self._values:
            self._values = count_values(self.own, most=most)
        self._values += count_values(items, most=most) * times
        if self._values > most:
            raise _build_too_large_error(
                f"holds, with the request itself, more JSON values than limits.context_values ({most})", param
            )


def _build_too_large_error(why: str, param: str) -> GatewayError:
    return GatewayError("request_too_large", f"What this request goes on from {why}: {_WAY_OUT}", param=param)
