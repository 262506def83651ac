"""The meter of a path: what of its usage is read, and what is estimated."""

import pytest

from gateway.features.usage.observer_batch import UsageBatch
from gateway.features.usage.observer_meter import FILE_BYTES_A_TOKEN, UsageMeter, build_meter, is_model_path
from gateway.usage.tokens import BYTES_A_TOKEN

CHAT, SOUND = b"/v1/chat/completions", b"/v1/audio/transcriptions"


def meter(path: bytes, *, makes: bool = True) -> UsageMeter:
    return build_meter(lambda *_: None, UsageBatch().undecoded, makes=makes, path=path)


@pytest.mark.parametrize(
    ("path", "asked_bytes", "answers"),
    [
        (CHAT, BYTES_A_TOKEN, True),
        (b"/v1/embeddings", BYTES_A_TOKEN, False),
        (SOUND, FILE_BYTES_A_TOKEN, True),
        (b"/v1/images/edits", FILE_BYTES_A_TOKEN, False),
        (b"/v1/files", 0, False),
    ],
)
def test_input_usage_is_estimated_by_request_bytes(path: bytes, asked_bytes: int, answers: bool) -> None:
    found = meter(path)
    assert (found.asked_bytes, found.answers, found.reads) == (asked_bytes, answers, True)


def test_stored_answer_is_identified_by_id_and_read_at_once() -> None:
    """It was counted when it was made, so it is read by itself."""
    found = meter(b"/v1/responses/resp_1/cancel")
    assert (found.stored, found.waits, meter(CHAT).waits) == (b"resp_1", False, True)


def test_nongenerating_request_is_not_metered() -> None:
    assert not meter(CHAT, makes=False).reads
    assert (
        is_model_path(CHAT, makes=True)
        and not is_model_path(CHAT, makes=False)
        and not is_model_path(SOUND, makes=True)
    )
