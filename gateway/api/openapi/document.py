"""The description of the gateway's own API (OpenAPI 3.1), and docs/api.md: both from the table of operations.

`python -m gateway.api.openapi.document` writes docs/api.md; `--check` compares it.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.api.openapi.operation import JSON, Operation, OperationAnswer
from gateway.api.openapi.operations import COMMON, OF_KEYS, OPERATIONS
from gateway.api.openapi.schemas import build_schemas
from gateway.api.openapi.shapes import TEXT, build_reference
from gateway.contracts.errors import CODES

VERSION: Final = "3.1.0"
_DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "api.md"
_ABOUT: Final = (
    "Pages of the gateway itself. All else beneath `/v1` and `/context/v1` goes to an upstream unchanged. Keys are "
    "required only where the configuration has `keys`. `/context/v1/responses`, "
    "`/context/v1/conversations` and the pages below them answer alike without `/v1`, and without `/context` where the "
    "request has a header X-Context-*. HEAD answers like GET, without a body, where `x-head` says so. "
    "Bodies may be gzip. Each error has the header `x-request-id`."
)
_INTRODUCTION: Final = """\
# The gateway's own API

After this page you know every page of the gateway, what it takes, and which errors it answers.

```sh
curl -s http://127.0.0.1:8080/openapi.json
```

The command prints the same description as OpenAPI 3.1, for generators of clients. `python -m
gateway.api.openapi.document` writes this page from the code.

- The gateway sends everything else beneath `/v1` and `/context/v1` to an upstream unchanged.
- Scopes count only if the configuration has `keys`.
- Bodies are JSON and may be gzip.
- [errors.md](errors.md) explains each error.
- `/context/v1/responses`, `/context/v1/conversations` and the pages below them answer alike without `/v1`, and without
  `/context` where the request has a header `X-Context-*`. A slash may follow the path of a chat completion, a new
  response and a new conversation.
- Lists come in pages: send `next` of an answer as `after` of the next request. `next` is `null` on the last page. A
  page may be shorter than `limit`. The tools of one MCP server and the categories of workflows come in one page.
  Lists of items have OpenAI's form: send `last_id` as `after` while `has_more` is true.

Every page may answer {common}.

Pages with a scope may also answer {keys}.
"""


@cache
def describe_api() -> bytes:
    """Return the document as JSON."""
    return orjson.dumps(build_document(), option=orjson.OPT_APPEND_NEWLINE)


def build_document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    refusals: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation, refusals)
    return {
        "openapi": VERSION,
        "info": {"title": "Twolane", "version": "1", "description": _ABOUT},
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in OPERATIONS)],
        "paths": paths,
        "components": {
            "schemas": build_schemas(),
            "responses": refusals,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Where the upstream has a key of its own.",
                },
                "gatewayKey": {"type": "apiKey", "in": "header", "name": "X-Gateway-Key"},
            },
        },
    }


def group_error_codes(operation: Operation) -> dict[int, list[str]]:
    """Return the error codes of an operation by status, including `COMMON`."""
    of_keys = OF_KEYS if operation.scopes else ()
    by_status: dict[int, list[str]] = {}
    for code in sorted({*operation.errors, *of_keys, *COMMON}):
        by_status.setdefault(CODES[code].status, []).append(code)
    return dict(sorted(by_status.items()))


def render() -> str:
    """Return the text of docs/api.md."""
    common, keys = (", ".join(f"`{code}`" for code in codes) for codes in (COMMON, OF_KEYS))
    parts = [_INTRODUCTION.format(common=common, keys=keys)]
    for tag in dict.fromkeys(operation.tag for operation in OPERATIONS):
        parts.append(f"\n## {tag}\n")
        for operation in OPERATIONS:
            if operation.tag == tag:
                parts += _build_section(operation)
    return "\n".join(parts) + "\n"


def _build_section(operation: Operation) -> Iterator[str]:
    methods = f"{operation.method}, HEAD" if operation.head else operation.method
    yield f"### {methods} `{operation.path}`\n"
    scopes = " or ".join(f"`{scope}`" for scope in operation.scopes)
    yield f"{operation.summary}. " + (f"Scope: {scopes}." if scopes else "For every client.") + "\n"
    for parameter in operation.parameters:
        where = "header" if parameter.place == "header" else "query"
        yield f"- {where} `{parameter.name}`: {parameter.description}"
    if operation.body is not None:
        yield f"- body: `{operation.body}`" + ("" if operation.body_required else ", or none")
    for status, answer in operation.answers.items():
        kinds = ", ".join(f"`{_name_content(kind, schema)}`" for kind, schema in answer.content.items())
        yield f"- {status}: {answer.description}" + (f" {kinds}" if kinds else "")
    if operation.errors:
        yield "- errors: " + ", ".join(f"{CODES[code].status} `{code}`" for code in _list_own_errors(operation))
    yield ""


def _list_own_errors(operation: Operation) -> Sequence[str]:
    return sorted({*operation.errors} - {*COMMON, *OF_KEYS}, key=lambda code: (CODES[code].status, code))


def _name_content(kind: str, schema: object) -> str:
    found = re.search(r"schemas/(\w+)", str(schema))
    if kind != JSON or found is None:
        return kind
    return f"list of {found[1]}" if isinstance(schema, dict) and "$ref" not in schema else found[1]


def _describe_operation(operation: Operation, refusals: dict[str, Any]) -> dict[str, Any]:
    """Return the description of an operation. Add its error answers to `refusals`, each once."""
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_list_path_parameters(operation.path), *_list_parameters(operation)],
        "responses": {
            **{str(status): _build_response(answer) for status, answer in operation.answers.items()},
            **dict(_iterate_errors(operation, refusals)),
        },
    }
    if operation.scopes:
        described["security"] = [{"bearer": []}, {"gatewayKey": []}]
        described["x-scopes"] = list(operation.scopes)
    if operation.head:
        described["x-head"] = True
    if operation.body is not None:
        content = {JSON: {"schema": build_reference(operation.body)}}
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _list_path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", path):
        yield {"name": name, "in": "path", "required": True, "schema": TEXT}


def _list_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for one in operation.parameters:
        yield {"name": one.name, "in": one.place, "schema": one.schema, "description": one.description}


def _build_response(answer: OperationAnswer) -> dict[str, Any]:
    content = {kind: {} if schema is None else {"schema": schema} for kind, schema in answer.content.items()}
    return {"description": answer.description, "content": content} if content else {"description": answer.description}


def _iterate_errors(operation: Operation, refusals: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the error answers by status. A status that can also mean success has its own description."""
    for status, codes in group_error_codes(operation).items():
        if status not in operation.answers:
            content = {JSON: {"schema": _build_error_schema(codes)}}
            response = {"description": "`" + "`, `".join(codes) + "`", "content": content}
            same = (name for name, known in refusals.items() if known == response)
            number = sum(name.startswith(f"Error{status}") for name in refusals) + 1
            name = next(same, f"Error{status}-{number}")
            refusals[name] = response
            yield str(status), {"$ref": f"#/components/responses/{name}"}


def _build_error_schema(codes: Sequence[str]) -> dict[str, Any]:
    named = {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}}
    return {"allOf": [build_reference("Error"), named]}


def main(arguments: Sequence[str]) -> str | None:
    """Write docs/api.md, or compare it. Return the problem, or None."""
    text = render()
    if "--check" not in arguments:
        _DOCUMENT.write_text(text)
    elif _DOCUMENT.read_text() != text:
        return "docs/api.md is out of date: python -m gateway.api.openapi.document writes it"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
