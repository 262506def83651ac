"""POST /v1/embeddings: vectors made from the hash of each input."""

import base64
import hashlib
import math
import struct
from typing import Final

import orjson

from gateway.demo.conversation import Json, RefusalError

DIMENSIONS: Final = 256
MAX_DIMENSIONS: Final = 4096
MAX_INPUTS: Final = 2048


def embed(body: Json) -> Json:
    """Return the answer to a request for embeddings."""
    inputs = _read_inputs(body.get("input"))
    dimensions = body.get("dimensions", DIMENSIONS)
    if not isinstance(dimensions, int) or not 1 <= dimensions <= MAX_DIMENSIONS:
        raise RefusalError(f"'dimensions' must be 1 to {MAX_DIMENSIONS}, not {dimensions!r}.", param="dimensions")
    encoding = body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise RefusalError(f"'encoding_format' must be float or base64, not {encoding!r}.", param="encoding_format")
    tokens = sum(-(-len(text) // 4) for text in inputs)
    vectors = (build_vector(text, dimensions=dimensions) for text in inputs)
    return {
        "object": "list",
        "model": body.get("model", "demo-embedding"),
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": _encode_vector(vector) if encoding == "base64" else vector,
            }
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def build_vector(text: bytes, *, dimensions: int) -> list[float]:
    """Return a vector of length 1; its numbers are exact in 32 bits, so both encodings give the same values."""
    drawn = struct.unpack(f"<{dimensions}h", hashlib.shake_128(text).digest(2 * dimensions))
    length = math.hypot(*drawn) or 1.0
    return list(
        struct.unpack(f"<{dimensions}f", struct.pack(f"<{dimensions}f", *(number / length for number in drawn)))
    )


def _encode_vector(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _read_inputs(value: object) -> list[bytes]:
    """Read a text, a list of texts, a text as token numbers, or a list of such texts."""
    items = value if isinstance(value, list) and not _is_tokens(value) else [value]
    if not 1 <= len(items) <= MAX_INPUTS or not all(isinstance(item, str) or _is_tokens(item) for item in items):
        raise RefusalError(
            f"'input' must be a string, token numbers, or a list of 1 to {MAX_INPUTS} of them.", param="input"
        )
    return [item.encode() if isinstance(item, str) else orjson.dumps(item) for item in items]


def _is_tokens(item: object) -> bool:
    return isinstance(item, list) and bool(item) and all(type(number) is int for number in item)
