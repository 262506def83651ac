"""The paths at which models answer, in OpenAI's and Anthropic's APIs, and the native ones of other servers."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.lanes.path_normalization import may_end_with

#: Ends of paths at which a model answers with text.
_TEXT: Final = (
    b"/responses",
    b"/responses/compact",
    b"/messages",
    b"/completions",
    b"/complete",
    b"/realtime",
    # Ollama, Cohere, llama.cpp, TGI, vLLM
    b"/chat",
    b"/generate",
    b"/generate_stream",
    b"/completion",
    b"/infill",
    # Gemini, Vertex
    b":generatecontent",
    b":streamgeneratecontent",
    b":rawpredict",
    b":streamrawpredict",
    b":generateanswer",
    b"/interactions",
    # Bedrock, SageMaker
    b"/invoke",
    b"/invoke-with-response-stream",
    b"/converse",
    b"/converse-stream",
    b"/retrieveandgenerate",
    b"/retrieveandgeneratestream",
    b"/invocations",
    b"/invocations-response-stream",
)
#: Ends at which it answers with numbers, images or sounds.
_NO_TEXT: Final = (
    b"/embeddings",
    b"/embed",
    b":embedcontent",
    b":batchembedcontents",
    b":predict",
    b"/rerank",
    b"/score",
    # llama.cpp, vLLM, Replicate
    b"/embedding",
    b"/reranking",
    b"/classify",
    b"/pooling",
    b"/predictions",
    b"/images/generations",
    b"/audio/speech",
)
#: Where a thread is answered. Its messages are only stored.
_RUNS: Final = (b"/runs", b"/submit_tool_outputs")
_STORES: Final = re.compile(rb"/threads/[\w-]+/messages/?\Z", re.IGNORECASE)


#: What OpenTelemetry calls the operation at a path, by its end; `chat` at the other ones where a model answers.
_OPERATIONS: Final = (
    ("text_completion", (b"/completions", b"/completion", b"/complete", b"/infill", b"/generate", b"/generate_stream")),
    ("generate_content", (b":generatecontent", b":streamgeneratecontent", b":generateanswer", b"/interactions")),
    ("embeddings", (b"/embeddings", b"/embed", b"/embedding", b":embedcontent", b":batchembedcontents", b"/pooling")),
)


def find_operation(path: bytes) -> str | None:
    """Return the name that spans give to what a model does at a path; None: no model answers there, or no such name."""
    is_chat = b"/chat/" in unquote_to_bytes(path).lower()
    named = next((name for name, ends in _OPERATIONS if not is_chat and may_end_with(path, ends)), None)
    return named or ("chat" if generates(path) else None)


def generates(path: bytes) -> bool:
    """Return whether a model may answer requests to a path with text, however the path is spelled."""
    if _STORES.search(path) is not None:
        return False
    is_thread = b"threads" in unquote_to_bytes(path).lower()
    return may_end_with(path, (*_TEXT, *_RUNS) if is_thread else _TEXT)


def computes(path: bytes) -> bool:
    """Return whether a model may answer requests to a path with anything else, however the path is spelled."""
    return may_end_with(path, _NO_TEXT)
