"""The paths at which models answer, of the APIs that are in use."""

import pytest

from gateway.lanes.billable_paths import computes, find_operation, generates

TEXT = [
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/complete", "/v1/realtime",
    "/api/chat", "/api/generate", "/v2/chat", "/completion", "/generate_stream", "/model/m/converse-stream",
    "/v1beta/models/g:generateContent", "/v1/projects/p/models/c:streamRawPredict", "/v1/threads/t_1/runs",
    "/v1/threads/runs", "/v1/threads/t_1/runs/r_1/submit_tool_outputs", "/v1/%74hreads/t_1/runs",
    "/v1/threads/../messages", "/v1/threads/t_1%2f..%2f../messages",
    "/v1/responses/compact", "/v1beta/models/g:generateAnswer", "/v1beta/interactions", "/retrieveAndGenerate",
]  # fmt: skip
OTHER = [
    "/v1/embeddings", "/api/embed", "/v1beta/models/g:batchEmbedContents", "/v1/rerank", "/v1/audio/speech",
    "/embedding", "/reranking", "/classify", "/pooling", "/v1/models/o/m/predictions",
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/responses", "chat"),
        ("/v1/messages", "chat"),
        ("/v1/completions", "text_completion"),
        ("/v1beta/models/g:streamGenerateContent", "generate_content"),
        ("/v1/embeddings/", "embeddings"),
        ("/v1/images/generations", None),
        ("/v1/files", None),
    ],
)
def test_operations_have_the_names_of_opentelemetry(path: str, operation: str | None) -> None:
    assert find_operation(path.encode()) == operation


@pytest.mark.parametrize("path", TEXT)
def test_text_endpoints_are_classified_as_generating(path: str) -> None:
    assert generates(path.encode()) and not computes(path.encode())


@pytest.mark.parametrize("path", OTHER)
def test_embedding_image_and_audio_endpoints_are_classified_as_computing(path: str) -> None:
    assert computes(path.encode()) and not generates(path.encode())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/threads/t_1/messages",
        "/v1/Threads/t_1/Messages/",
        "/v1/threads",
        "/v1/runs",
        "/v1/batches",
        "/v1/conversations",
    ],
)
def test_storage_endpoints_are_neither_generating_nor_computing(path: str) -> None:
    assert not generates(path.encode()) and not computes(path.encode())
