"""The parts of contents: what is refused, and what chat completions have of them."""

import pytest

from gateway.contracts.storage.store import Json

from .requests import CALL, OUTPUT, messages, refusal

TEXT: Json = {"type": "input_text", "text": "Look:"}
IMAGE: Json = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
FILE: Json = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}
AUDIO: Json = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}


def of_user(*parts: object) -> Json:
    return {"role": "user", "content": list(parts)}


@pytest.mark.parametrize(
    ("part", "code", "place"),
    [
        (5, "invalid_field", ""),
        ("text", "invalid_field", ""),
        (None, "invalid_field", ""),
        ({}, "missing_field", ".type"),
        ({"type": 5}, "invalid_field", ".type"),
        ({"type": ["input_text"]}, "invalid_field", ".type"),
        ({"type": "input_smell"}, "invalid_field", ".type"),
        ({"type": "input_video", "video_url": "https://a"}, "invalid_field", ".type"),
        ({"type": "input_text"}, "missing_field", ".text"),
        ({"type": "input_text", "text": 5}, "invalid_field", ".text"),
        ({"type": "output_text", "text": None}, "missing_field", ".text"),
        ({"type": "refusal", "text": "no"}, "missing_field", ".refusal"),
        ({"type": "input_image"}, "missing_field", ".image_url"),
        ({"type": "input_image", "image_url": ""}, "missing_field", ".image_url"),
        ({"type": "input_image", "image_url": {"url": "https://a"}}, "invalid_field", ".image_url"),
        ({**IMAGE, "detail": "fine"}, "invalid_field", ".detail"),
        ({"type": "input_image", "file_id": "file_1"}, "unsupported_parameter", ".file_id"),
        ({"type": "input_file"}, "missing_field", ".file_data"),
        ({"type": "input_file", "file_data": 5}, "invalid_field", ".file_data"),
        ({"type": "input_file", "file_id": "f" * 65}, "invalid_field", ".file_id"),
        ({"type": "input_file", "file_url": "https://a/b.pdf"}, "unsupported_parameter", ".file_url"),
        ({"type": "input_audio"}, "missing_field", ".input_audio"),
        ({"type": "input_audio", "input_audio": {"data": "AA=="}}, "missing_field", ".input_audio.format"),
        ({"type": "input_audio", "input_audio": {"data": 1, "format": "wav"}}, "invalid_field", ".input_audio.data"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "ogg"}}, "invalid_field", ".input_audio.format"),
    ],
)
def test_invalid_content_part_is_refused(part: object, code: str, place: str) -> None:
    error = refusal(of_user(TEXT, part))
    assert (error.code, error.param) == (code, f"input[0].content[1]{place}")


@pytest.mark.parametrize("part", [IMAGE, FILE, AUDIO])
@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
def test_file_parts_are_accepted_from_users_only(part: Json, role: str) -> None:
    assert refusal({"role": role, "content": [part]}).param == "input[0].content[0].type"


def test_output_error_names_its_place_within_the_call_output() -> None:
    assert refusal(CALL, {**OUTPUT, "output": [TEXT, {"type": "input_text"}]}).param == "input[1].output[1].text"
    assert refusal(CALL, {**OUTPUT, "output": None}).param == "input[1].output"
    assert refusal(CALL, {**OUTPUT, "output": {"a": 1}}).param == "input[1].output"


def test_text_parts_are_joined_into_one_text() -> None:
    """Model servers understand a text in any case; some make several messages of parts."""
    assert messages(of_user(TEXT, {"type": "text", "text": "a"}))[0]["content"] == "Look:\na"
    assert messages(of_user())[0]["content"] == ""
    said = [{"type": "output_text", "text": "one "}, {"type": "refusal", "refusal": "no"}]
    assert messages({"role": "assistant", "content": said})[0] == {"role": "assistant", "content": "one no"}


def test_images_files_and_audio_are_parts_of_chat_completions() -> None:
    file_id = {"type": "input_file", "file_id": "file_1"}
    plain = {"type": "input_image", "image_url": "https://a/b.png"}
    assert messages(of_user(TEXT, IMAGE, plain, FILE, file_id, AUDIO))[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]


def test_files_of_an_output_follow_in_a_message() -> None:
    """A tool message is text."""
    found = messages(CALL, {**OUTPUT, "output": [TEXT, IMAGE]})
    assert [message["role"] for message in found] == ["assistant", "tool", "user"]
    assert found[1]["content"] == "Look:\nThe output is in the next message."
    assert found[2]["content"] == [{"type": "image_url", "image_url": {"url": IMAGE["image_url"], "detail": "low"}}]
    assert messages(CALL, {**OUTPUT, "output": [IMAGE]})[1]["content"] == "The output is in the next message."
