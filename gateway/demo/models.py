"""GET /v1/models: the name of the demo model; the generating routes take any other name too."""

from typing import Final

from gateway.demo.conversation import Json, RefusalError
from gateway.demo.script import CREATED

MODELS: Final = ("demo", "demo-embedding")


def list_models() -> Json:
    return {"object": "list", "data": [describe_model(name) for name in MODELS]}


def describe_model(name: str) -> Json:
    if name not in MODELS:
        raise RefusalError(
            f"The model {name!r} does not exist. Use one of: {', '.join(MODELS)}.",
            status=404,
            code="model_not_found",
            param="model",
        )
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "twolane-demo"}
