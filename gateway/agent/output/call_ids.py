"""The ids and numbers of the calls in one answer: some model servers give two calls the same, or a call none."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.contracts.storage.store import Json


def generate_call_id() -> str:
    """Return an id that no other call has."""
    return "call_" + secrets.token_hex(12)


@dataclass(slots=True)
class _ClientCall:
    """A call as its client gets it: `sent` is the id that came, `id` and `number` are the ones that the client gets."""

    sent: str
    id: str
    number: int
    has_arguments: bool = False


class CallIds:
    """The ids and numbers under which a client gets the calls of one answer, as their pieces stream past."""

    __slots__ = ("_by_index", "_told", "_used")

    def __init__(self) -> None:
        self._told: list[_ClientCall] = []
        self._by_index: dict[int, _ClientCall] = {}
        self._used: set[str] = set()

    def assign_ids(self, pieces: Iterable[Any]) -> list[Any]:
        """Return pieces of calls, each with an id and an index that no other call of the answer has."""
        return [self._assign_piece_ids(piece) if isinstance(piece, dict) else piece for piece in pieces]

    def _assign_piece_ids(self, piece: Json) -> Json:
        """Return a piece of a call with the id and index of its call; other values stay unchanged."""
        index, sent = piece.get("index"), piece.get("id") or ""
        if not isinstance(index, int | None) or not isinstance(sent, str):
            return piece
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        is_named = bool(function.get("name"))
        known = self._find_call(index, sent=sent, is_named=is_named)
        if known is not None:
            known.has_arguments = known.has_arguments or bool(function.get("arguments"))
            numbered = {**piece, "index": known.number}
            return {**numbered, "id": known.id} if sent else numbered
        if not is_named:
            return piece
        told = generate_call_id() if not sent or sent in self._used else sent
        begun = _ClientCall(sent, told, len(self._told), bool(function.get("arguments")))
        self._told.append(begun)
        self._used.add(told)
        if index is not None:
            self._by_index[index] = begun
        return {**piece, "index": begun.number, "id": told}

    def _find_call(self, index: int | None, *, sent: str, is_named: bool) -> _ClientCall | None:
        """Return the call that a piece continues, as `NativeCalls` reads it."""
        if index is not None:
            known = self._by_index.get(index)
            is_next = known is not None and is_named and sent and known.sent and sent != known.sent
            return None if is_next else known  # some give one index to all
        if sent:
            return next((one for one in self._told if one.sent == sent), None)
        last = self._told[-1] if self._told else None
        return None if last is not None and is_named and last.has_arguments else last
