"""POST /v1/files: hashes an upload of any size as it arrives and stores nothing of it."""

import hashlib
from typing import Final

from aiohttp import BodyPartReader, web
from aiohttp.http import HttpProcessingError

from gateway.demo.conversation import Json, RefusalError
from gateway.demo.script import CREATED

_CHUNK_BYTES: Final = 256 * 1024


async def upload(request: web.Request) -> Json:
    """Return OpenAI's file object, with the `sha256` of the content."""
    if request.content_type != "multipart/form-data":
        raise RefusalError(f"An upload must be multipart/form-data, not {request.content_type!r}.", param="file")
    purpose, file = "user_data", None
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise RefusalError("An upload must not have a multipart inside its multipart.", param="file")
            if part.name == "file":
                file = await _read_file(part)
            elif part.name == "purpose":
                purpose = await part.text()
    except (ValueError, HttpProcessingError) as error:
        raise RefusalError(f"The upload is not valid multipart/form-data: {error}.", param="file") from None
    if file is None:
        raise RefusalError("The upload has no part with the name 'file'.", param="file")
    return {**file, "purpose": purpose}


async def _read_file(part: BodyPartReader) -> Json:
    digest, size_bytes = hashlib.sha256(), 0
    while chunk := await part.read_chunk(_CHUNK_BYTES):
        digest.update(chunk)
        size_bytes += len(chunk)
    return {
        "id": f"file-{digest.hexdigest()[:24]}",
        "object": "file",
        "bytes": size_bytes,
        "created_at": CREATED,
        "filename": part.filename or "file",
        "status": "processed",
        "sha256": digest.hexdigest(),
    }
