"""The places of hidden turns in a conversation: each around its answer, once, or nowhere. Sans-I/O."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.agent.hidden.answer_keys import AnswerKeys
from gateway.contracts.storage.store import HiddenTurn, Json


@dataclass(slots=True)
class HiddenTurnMap:
    """The hidden turns of each answer, by its index.

    `ambiguous` counts the answers that could be of two turns, `foreign` the ids of another named conversation. Nothing
    is put back for either.
    """

    turns: dict[int, list[HiddenTurn]] = field(default_factory=dict)
    ambiguous: int = 0
    foreign: int = 0


def find_places(
    keys: Mapping[int, AnswerKeys], known: Mapping[str, HiddenTurn | None], *, conversation: str | None
) -> HiddenTurnMap:
    """Return the places of the known turns. `known` maps keys to turns in the store; None where a key fits two turns.

    `conversation` is the name of the conversation. An id of a turn of another name finds nothing.
    """
    places = HiddenTurnMap()
    placed: dict[str, list[HiddenTurn]] = {}  # by their runs

    def put_place(index: int, turn: HiddenTurn | None) -> None:
        if turn is None:
            places.ambiguous += 1
        elif None not in (turn.conversation, conversation) and turn.conversation != conversation:
            places.foreign += 1
        elif not any(turn.overlaps(other) for other in placed.get(turn.run_id, ())):
            placed.setdefault(turn.run_id, []).append(turn)
            places.turns.setdefault(index, []).append(turn)

    for index, own in keys.items():
        for key in own.ids:
            if key in known:
                put_place(index, known[key])
    for index, own in keys.items():
        if index not in places.turns and own.prefix in known:
            put_place(index, known[own.prefix])
    often = Counter(own.place for own in keys.values())
    for index, own in keys.items():
        if own.place is not None and own.place in known and own.prefix not in known and often[own.place] == 1:
            put_place(index, known[own.place])
    return places


def put_back(messages: Sequence[Json], places: Mapping[int, Sequence[HiddenTurn]]) -> list[Json]:
    """Return the conversation with the hidden messages in front of its answers.

    The messages after a question that was decided elsewhere stand in its place: no two answers follow each other. A
    client's message may have the thoughts of all rounds: those of hidden rounds stand in these alone.
    """
    whole: list[Json] = []
    for index, message in enumerate(messages):
        turns = places.get(index, ())
        came = [came for turn in turns for came in turn.behind]
        n_hidden = len(came) + sum(len(turn.before) for turn in turns)
        for turn in turns:
            whole += turn.before
        whole += came
        if not came or came[-1].get("role") != "assistant":
            whole.append(remove_known_thoughts(message, whole[-n_hidden:]) if n_hidden else message)
    return whole


def remove_known_thoughts(message: Json, hidden: Sequence[Json]) -> Json:
    """Return an answer without the thoughts that the hidden messages in front of it have; itself if it has none."""
    details, text = message.get("reasoning_details"), message.get("reasoning_content")
    changed: Json = {}
    if isinstance(details, list):
        known = {proof for one in hidden for proof in map(_find_proof, one.get("reasoning_details") or ()) if proof}
        left = [detail for detail in details if _find_proof(detail) not in known]
        if len(left) < len(details):
            changed["reasoning_details"] = left
    if isinstance(text, str) and text:
        left_text = text
        for thought in (one.get("reasoning_content") for one in hidden):
            if isinstance(thought, str) and thought and left_text.startswith(thought):
                left_text = left_text[len(thought) :]
        if left_text != text:
            changed["reasoning_content"] = left_text
    return {name: value for name, value in (message | changed).items() if name not in changed or value}


def _find_proof(detail: object) -> str | None:
    """Return what only one thought has: its signature, or what its provider encrypted."""
    proof = (detail.get("signature") or detail.get("data")) if isinstance(detail, dict) else None
    return proof if isinstance(proof, str) else None
