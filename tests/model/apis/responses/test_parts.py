"""The content of chat messages as parts of Responses."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.parts import build_parts, build_text_part, build_texts, list_lost_parts

PDF = "data:application/pdf;base64,AA=="


@pytest.mark.parametrize(
    ("part", "converted"),
    [
        ({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}, {"type": "input_text", "text": "Hi"}),
        (
            {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
            {"type": "input_image", "image_url": "https://x/a.png", "detail": "low"},
        ),
        (
            {"type": "image_url", "image_url": "data:image/png;base64,AA=="},
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}, "context": "c"},
            {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        ),
        (
            {"type": "file", "file": {"file_data": PDF}, "title": "A"},
            {"type": "input_file", "filename": "A", "file_data": PDF},
        ),
        (
            {"type": "file", "file": {"file_data": PDF}},
            {"type": "input_file", "filename": "document.pdf", "file_data": PDF},
        ),
        ({"type": "file", "file": {"file_data": "https://x/a"}}, {"type": "input_file", "file_url": "https://x/a"}),
        ({"type": "file", "file": {"file_id": "f"}}, {"type": "input_file", "file_id": "f"}),
        (
            {"type": "file", "file": {"file_data": "data:image/png;base64,AA=="}},
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
        ),
        ({"type": "input_image", "file_id": "f"}, {"type": "input_image", "file_id": "f"}),
    ],
)
def test_part_becomes_a_part_of_the_api(part: Json, converted: Json) -> None:
    assert build_parts([part]) == [converted]
    assert list(list_lost_parts([part])) == []


def test_part_without_an_equal_becomes_a_text_that_names_it() -> None:
    lost = [{"type": "input_audio"}, {"type": "image_url", "image_url": 7}, {"type": "file", "file": {}}]
    assert [part["type"] for part in build_parts(lost)] == ["input_text"] * 3
    assert "'input_audio' was left out" in build_parts(lost)[0]["text"]
    assert list(list_lost_parts(lost)) == ["input_audio", "image_url", "file"]


def test_thoughts_empty_texts_and_what_is_no_part_are_left_out() -> None:
    assert build_parts([{"type": "thinking"}, {"type": "text", "text": ""}, 7, "Hi"]) == [build_text_part("Hi")]
    assert build_parts("") == build_parts(None) == []
    assert build_parts("Hi") == [build_text_part("Hi")]


def test_answer_consists_of_its_texts() -> None:
    parts: list[Json] = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}, {"type": "image_url"}]
    assert build_texts(parts) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert build_texts("a") == [{"type": "text", "text": "a"}]
    assert build_texts("") == build_texts(None) == []
