"""Embeddings over a real socket."""

import base64
import math
import struct

import aiohttp
import pytest

from gateway.demo.embeddings import DIMENSIONS, MAX_DIMENSIONS, MAX_INPUTS, build_vector

from .talk import post

PATH = "/v1/embeddings"


async def test_base64_and_float_embeddings_are_equal(client: aiohttp.ClientSession) -> None:
    """base64 is the little-endian 32-bit form of the floats."""
    body = {"model": "any-name", "input": ["a", "b"]}
    floats = await post(client, PATH, body)
    packed = await post(client, PATH, {**body, "encoding_format": "base64"})
    assert [entry["index"] for entry in floats["data"]] == [0, 1]
    for entry, other in zip(floats["data"], packed["data"], strict=True):
        vector = entry["embedding"]
        assert len(vector) == DIMENSIONS
        assert list(struct.unpack(f"<{DIMENSIONS}f", base64.b64decode(other["embedding"]))) == vector
    assert (floats["object"], floats["model"], floats["usage"]) == (
        "list",
        "any-name",
        {"prompt_tokens": 2, "total_tokens": 2},
    )


async def test_embedding_inputs_of_every_shape_are_accepted(client: aiohttp.ClientSession) -> None:
    """One text, several, one text as tokens, several: each gives as many vectors."""
    for value, count in (("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2], [3]], 3)):
        answer = await post(client, PATH, {"input": value, "dimensions": 8})
        assert [len(entry["embedding"]) for entry in answer["data"]] == [8] * count


def test_embedding_vectors_are_deterministic_and_normalised() -> None:
    """A vector depends on its text alone and has length 1."""
    assert build_vector(b"a", dimensions=64) == build_vector(b"a", dimensions=64) != build_vector(b"b", dimensions=64)
    assert math.isclose(math.hypot(*build_vector(b"a", dimensions=MAX_DIMENSIONS)), 1, abs_tol=1e-5)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [True]}, "input"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "8"}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
async def test_invalid_embedding_fields_return_400(client: aiohttp.ClientSession, body: object, param: str) -> None:
    """Wrong fields are refused by name."""
    async with client.post(PATH, json=body) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, param)
