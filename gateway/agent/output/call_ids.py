"""The ids of the calls in one answer: some model servers give two calls the same one, or a call none."""

import secrets
from collections.abc import Iterable
from typing import Any

from gateway.contracts.store import Json


def new_call_id() -> str:
    """Return an id that no other call has."""
    return "call_" + secrets.token_hex(12)


class CallIds:
    """The ids under which a client gets the calls of one answer, as their pieces stream past."""

    __slots__ = ("_told", "_used")

    def __init__(self) -> None:
        self._told: dict[int, tuple[str, str]] = {}  # by index: the id that came, and the one that is told
        self._used: set[str] = set()

    def of(self, pieces: Iterable[Any]) -> list[Any]:
        """Return pieces of calls, each with an id that no other call of the answer has."""
        return [self._piece(piece) if isinstance(piece, dict) else piece for piece in pieces]

    def _piece(self, piece: Json) -> Json:
        index, sent = piece.get("index"), piece.get("id") or ""
        if not isinstance(index, int) or not isinstance(sent, str):
            return piece
        function = piece.get("function")
        is_named = isinstance(function, dict) and bool(function.get("name"))
        known = self._told.get(index)
        if known is None or (is_named and sent and known[0] and sent != known[0]):  # some give one index to all
            if not is_named:
                return piece
            told = new_call_id() if not sent or sent in self._used else sent
            self._told[index] = sent, told
            self._used.add(told)
            return {**piece, "id": told}
        return {**piece, "id": known[1]} if sent else piece
