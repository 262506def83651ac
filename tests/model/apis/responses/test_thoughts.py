"""Reasoning items as `reasoning_details`, and back: as they came, in their order, or not at all."""

from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.thoughts import (
    ENCRYPTED,
    MESSAGE,
    PROVIDER_TOOL,
    SUMMARY,
    TEXT,
    build_entry,
    extract_items,
)


def entry(kind: str, index: int = 0, answer: str = "a", place: tuple[int, int] = (0, 0), **fields: object) -> Json:
    return build_entry(kind, fields, index=index, answer_id=answer, place=place)


def encrypted(index: int = 0, answer: str = "a", data: str = "eHg=", **fields: object) -> Json:
    return entry(ENCRYPTED, index, answer, data=data, id=f"rs_{index}", **fields)


def test_items_come_back_in_the_order_of_their_answer() -> None:
    search: Json = {"type": "web_search_call", "id": "ws"}
    details = [
        entry(ENCRYPTED, 3, data="eXk=", id="rs_3", place=(7, 2)),
        entry(SUMMARY, 0, summary="One.\n\nTwo.\n\nThree.", id="rs_0"),
        encrypted(0, parts=[4, 12]),
        entry(MESSAGE, 1, phase="commentary"),
        entry(PROVIDER_TOOL, 2, block=search, place=(7, 0)),
    ]
    summary = [{"type": "summary_text", "text": text} for text in ("One.", "Two.\n\nThree.")]
    assert [tuple(one) for one in extract_items(details, set())] == [
        ({"type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": "eHg="}, 0, 0),
        ({"type": MESSAGE, "phase": "commentary"}, 0, 0),
        (search, 7, 0),
        ({"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "eXk="}, 7, 2),
    ]


def test_open_reasoning_goes_back_as_text() -> None:
    details = [entry(TEXT, text="Hm.", id="rs_1"), entry(SUMMARY, summary="S", id="rs_1")]
    ((item, *_),) = extract_items(details, set())
    assert item["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert item["summary"] == [{"type": "summary_text", "text": "S"}] and "encrypted_content" not in item


def test_items_of_earlier_answers_and_known_ones_are_left_out() -> None:
    known: set[str] = set()
    details = [encrypted(0, "a", data="eHg="), encrypted(1, "b", data="eXk=")]
    assert [one.block["encrypted_content"] for one in extract_items(details, known)] == ["eXk="]
    assert extract_items(details, known) == []


def test_what_the_model_could_not_read_is_left_out() -> None:
    foreign = {"type": ENCRYPTED, "data": "eHg=", "format": "anthropic-claude-v1", "index": 0}
    alone = entry(SUMMARY, summary="Only for people.", id="rs_1")
    for details in (None, 7, [], ["x", foreign], [alone], [{**encrypted(), "data": 7}]):
        assert list(extract_items(details, set())) == []
