"""The schema of a later version of the PostgreSQL store, and a gateway of that version."""

from pathlib import Path
from typing import Final

from gateway.plugins.stores.postgresql.migrations import SCHEMA, SchemaStep

VERSION: Final = SCHEMA[-1].version + 1
NEXT_SCHEMA: Final = (
    *SCHEMA,
    SchemaStep(VERSION, compatible_from=SCHEMA[-1].version, files=("next",), folder=Path(__file__).parent),
)
