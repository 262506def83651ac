"""`api_key_file` beside `api_key` and its like: the secret is read from a file when the configuration is."""

from collections.abc import Iterator

from gateway.config.document import Document
from gateway.config.feature_checks import collect_checks
from gateway.config.file_access import find_loose_access
from gateway.config.problems import KeyPath, fits
from gateway.config.reading.yaml_reader import BROKEN, read_text
from gateway.config.schema.tools import find_built_in_settings
from gateway.config.values.scalars import parse_path
from gateway.config.values.secret import Secret

SECRETS_WITH_FILES = (
    ("store",),
    ("limits", "valkey"),
    ("upstreams", "*", "api_key"),
    ("upstreams", "*", "endpoints", "*", "api_key"),
    ("approvals", "notify", "*", "webhook"),
    ("approvals", "notify", "*", "secret"),
    ("mcp", "servers", "*", "url"),
    ("mcp", "servers", "*", "oauth", "client_secret"),
)
HEADERS_WITH_FILES = (("mcp", "servers", "*", "headers"),)
COMPANION_SUFFIX = "_file"
_MAX_SECRET_BYTES = 64 * 1024


def read_companions(document: Document) -> None:
    """Put the content of each `*_file` where the secret itself would stand."""
    for path in list(list_companions(document)):
        _read_companion(document, path)
    of_features = (headers for feature in collect_checks() for headers in feature.secret_headers)
    for headers in (*HEADERS_WITH_FILES, *of_features):
        for path in list(document.iterate_matches(*headers, "*")):
            # No header ends like this, so the name is free for the file.
            if str(path[-1]).endswith(COMPANION_SUFFIX):
                _read_companion(document, path)
                document.drop(path)


def list_companions(document: Document) -> Iterator[KeyPath]:
    """Yield the path of each `*_file` that is given."""
    for pattern in SECRETS_WITH_FILES:
        yield from document.iterate_matches(*pattern[:-1], f"{pattern[-1]}{COMPANION_SUFFIX}")
    for path in document.iterate_matches("tools", "*", "*"):
        if str(path[-1]).endswith(COMPANION_SUFFIX) and find_companion(path) is not None:
            yield path


def find_companion(path: KeyPath) -> KeyPath | None:
    """Return the path of `api_key_file` for that of `api_key`, and the other way round. None: there is none."""
    name = str(path[-1])
    secret = (*path[:-1], name.removesuffix(COMPANION_SUFFIX))
    if not any(fits(secret, pattern) for pattern in SECRETS_WITH_FILES) and not _is_built_in_tool_setting(secret):
        return None
    return secret if name.endswith(COMPANION_SUFFIX) else (*path[:-1], f"{name}{COMPANION_SUFFIX}")


def _is_built_in_tool_setting(path: KeyPath) -> bool:
    """Return whether the plugin of a built-in tool declares this setting, and a file beside it."""
    if len(path) != 3 or path[0] != "tools" or (section := find_built_in_settings(path[1])) is None:
        return False
    return {str(path[2]), f"{path[2]}{COMPANION_SUFFIX}"} <= section.model_fields.keys()


def _read_companion(document: Document, path: KeyPath) -> None:
    """Put the secret in a file at the path of its key, or report the fault of the file."""
    secret_path = (*path[:-1], str(path[-1]).removesuffix(COMPANION_SUFFIX))
    if document.get(*secret_path) is not None:
        document.complain(path, f"{secret_path[-1]!r} is given as well: keep one of the two", key=True)
        return
    place = document.locate(path)
    try:
        file = parse_path(document.get(*path), document.folder)
        text = read_text(file, limit_bytes=_MAX_SECRET_BYTES).rstrip("\r\n")
        if (loose := find_loose_access(file)) is not None:
            document.warn(path, loose)
        if not text.strip():
            raise ValueError("the file is empty")
        document.put(secret_path, Secret(text), place=place)
    except ValueError as error:
        document.complain(path, str(error))
        document.put(secret_path, BROKEN, place=place)
