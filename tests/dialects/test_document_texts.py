"""The texts in documents: as whoever reads them finds them, and as they go on."""

import base64

import pytest

from gateway.dialects.document_texts import build_text_url, iterate_leaf_texts, read_text_url

PLAIN = build_text_url("Grüße")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (PLAIN, "Grüße"),
        (f"DATA:Text/Html;charset=utf-8;base64,{base64.b64encode(b'<p>').decode()}", "<p>"),
        ("data:,two%20words", "two words"),
        ("data:text/plain;base64,SG k", "Hi"),
        ("data:text/plain;base64,S", None),
        ("data:text/plain;base64,/w==", "\ufffd"),
        ("data:image/png;base64,iVBO", None),
        ("data:application/pdf;base64,JVBE", None),
        ("https://example.com/a.txt", None),
        ("", None),
    ],
)
def test_text_url_is_read(url: str, text: str | None) -> None:
    """In Base64 or not, and of any media type of texts."""
    assert read_text_url(url) == text


def test_text_url_keeps_its_media_type() -> None:
    assert build_text_url("Grüße") == f"data:text/plain;base64,{base64.b64encode('Grüße'.encode()).decode()}"
    assert build_text_url("b", like="data:text/csv;charset=utf-8,a") == "data:text/csv;charset=utf-8;base64,Yg=="
    assert build_text_url("b", like="data:text/csv;base64,YQ==") == "data:text/csv;base64,Yg=="


def test_leaf_texts_are_read_in_order() -> None:
    """Those of documents as texts, and nothing of an image."""
    source = {"type": "content", "content": [{"text": "one"}, {"text": "two"}]}
    picture = {"image_url": {"url": "data:image/png;base64,iVBO"}}
    value = [{"title": "T", "source": source}, {"file_data": PLAIN}, picture, 3, None, ("end",)]
    found = [text for text in iterate_leaf_texts(value) if text]
    assert found == ["T", "content", "one", "two", "Grüße", "end"]
