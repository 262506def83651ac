"""The cases that the gate's assessors are measured on, and what each of them means under each profile."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.risk import RiskAssessor
from gateway.contracts.storage.store import Json
from gateway.plugins.assessors import command, file, http, sql

DATA: Final = Path(__file__).parent / "data"
PROFILES: Final = ("literal", "standard", "hardened")
TOOLS: Final = {
    "sql": "execute_sql",
    "command": "execute_command",
    "file": "file_operations",
    "http": "http_request",
}
_PLUGINS: Final[Mapping[str, Plugin[Any, RiskAssessor]]] = {
    "sql": sql.PLUGIN,
    "command": command.PLUGIN,
    "file": file.PLUGIN,
    "http": http.PLUGIN,
}
#: Functions and variables are allow-lists in every profile, because no list of dangerous ones could be complete.
_ALWAYS_ASKS: Final = ("SELECT delete_user(5)", "SELECT my_schema.do_purge()", "echo $OPENAI_API_KEY")


def assessor(kind: str, profile: str) -> RiskAssessor:
    plugin = _PLUGINS[kind]
    return plugin.build(plugin.config.model_validate({"profile": profile}), cast(Host, None))


ASSESSORS: Final = {profile: {tool: assessor(kind, profile) for kind, tool in TOOLS.items()} for profile in PROFILES}


def cases(kind: str) -> list[Json]:
    """Those of the corpus and the further ones; without those that may be read in two ways."""
    lines = [line for name in (kind, f"{kind}_further") for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return [case for case in found if not case.get("ambiguous")]


def expected(case: Json, *, profile: str) -> str:
    """core holds everywhere; extended is auto but in literal; what hardening marks asks in hardened alone.

    What literal does not list asks there, of whatever tier the line is.
    """
    text = str(case["arguments"].get("sql", case["arguments"].get("command", "")))
    if text in _ALWAYS_ASKS:
        return "confirm"
    unlisted = text.startswith(("WITH", "EXPLAIN ANALYZE")) or text.split(" ")[0] in ("sort", "uniq") or "<" in text
    if profile == "literal" and (case["tier"] == "extended" or (case["tier"] == "hardening" and unlisted)):
        return "confirm"
    if case["tier"] == "hardening" and case["expect"] == "confirm" and profile != "hardened":
        return "auto"
    return str(case["expect"])
