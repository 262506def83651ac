"""Prompts, services, definitions, secrets, sessions, duties and leases of workers in the PostgreSQL store.

Their functions are in `sql/general.sql` and `sql/replicas.sql`.
"""

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.plugin import ReplicaLease, StoredPrompt, StoredService, WorkerService

from .base import PostgresqlBase
from .rows import PostgresqlRows, to_arrays
from .text_codec import restore_values

PROMPTS, SERVICES, REPORTS = PostgresqlRows(StoredPrompt), PostgresqlRows(StoredService), PostgresqlRows(WorkerService)
#: So many definitions are kept, the newest.
DEFINITIONS_KEPT: Final = 20_000
_SECRET_BYTES: Final = 32

_PROMPTS: Final = "SELECT id, tenant, text, version, updated_s FROM twolane.prompts"
_ALL_PROMPTS: Final = f"{_PROMPTS} ORDER BY id, tenant"
_PAGE: Final = f"{_PROMPTS} WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3"
_PROMPT: Final = f"{_PROMPTS} WHERE tenant = $1 AND id = $2"
_GENERATION: Final = "SELECT value FROM twolane.counters WHERE name = 'generation'"
_SERVICES: Final = """SELECT name, config, stopped, restarts, pins, version, updated_s FROM twolane.services
    ORDER BY name"""
_DEFINITIONS: Final = "SELECT sha256, content FROM twolane.definitions WHERE sha256 = ANY ($1)"
_REPORTS: Final = """SELECT worker, name, state, error, updated_s FROM twolane.worker_services WHERE updated_s >= $1
    ORDER BY name, worker"""
_ENDED: Final = "SELECT digest FROM twolane.ended_sessions WHERE digest = ANY ($1)"


class PostgresqlGeneral(PostgresqlBase):
    """The part of a store for everything but runs, responses, memories, keys and usage."""

    async def list_all_prompts(self) -> Sequence[StoredPrompt]:
        return await self._fetch_all(PROMPTS, _ALL_PROMPTS)

    async def list_prompts(self, *, tenant: str, after: str = "", limit: int) -> Sequence[StoredPrompt]:
        return await self._fetch_all(PROMPTS, _PAGE, tenant, after, limit)

    async def get_prompt(self, prompt_id: str, *, tenant: str) -> StoredPrompt | None:
        return await self._fetch_first(PROMPTS, _PROMPT, tenant, prompt_id)

    async def put_prompt(self, prompt_id: str, text: str, *, tenant: str, now_s: float) -> StoredPrompt:
        version = await self._call_value("put_prompt", prompt_id, tenant, text, now_s)
        return StoredPrompt(prompt_id, tenant, text, version, now_s)

    async def delete_prompt(self, prompt_id: str, *, tenant: str) -> bool:
        return bool(await self._call_value("delete_prompt", prompt_id, tenant))

    async def get_generation(self) -> int:
        ((value,),) = await self._read(_GENERATION)
        return int(value)

    async def list_services(self) -> Sequence[StoredService]:
        found = await self._fetch_all(SERVICES, _SERVICES)
        return [replace(service, pins=json.loads(str(service.pins))) for service in found]

    async def put_service(self, service: StoredService, *, expected: int) -> bool:
        pins = json.dumps(dict(service.pins))
        facts = (service.name, service.config, service.stopped, service.restarts, pins, service.updated_s)
        return bool(await self._call_value("put_service", *facts, expected))

    async def delete_service(self, name: str) -> bool:
        return bool(await self._call_value("delete_service", name))

    async def put_definitions(self, definitions: Mapping[str, str]) -> None:
        await self._call("put_definitions", [*definitions], [*definitions.values()], DEFINITIONS_KEPT)

    async def find_definitions(self, sha256s: Sequence[str]) -> Mapping[str, str]:
        rows = await self._read(_DEFINITIONS, list(sha256s))
        return dict(map(restore_values, rows))

    async def report_services(self, worker: str, services: Sequence[WorkerService]) -> None:
        rows = [(one.name, one.state, one.error, one.updated_s) for one in services]
        await self._call("report_services", worker, *to_arrays(rows, 4))

    async def list_reported_services(self, *, since_s: float) -> Sequence[WorkerService]:
        return await self._fetch_all(REPORTS, _REPORTS, since_s)

    async def get_or_create_secret(self, name: str) -> bytes:
        value: bytes = await self._call_value("secret", name, secrets.token_bytes(_SECRET_BYTES))
        return value

    async def end_session(self, digest: str, *, until_s: float, now_s: float) -> None:
        await self._call("end_session", digest, until_s, now_s)

    async def find_ended_sessions(self, digests: Collection[str]) -> Collection[str]:
        return {digest for (digest,) in map(restore_values, await self._read(_ENDED, list(digests)))}

    async def take_duty(self, name: str, *, owner: str, now_s: float, until_s: float) -> bool:
        return bool(await self._call_value("take_duty", name, owner, until_s - now_s))

    async def hold_leases(
        self, names: Collection[str], *, owner: str, address: str, now_s: float, until_s: float
    ) -> Sequence[ReplicaLease]:
        rows = await self._call("hold_leases", sorted(names), owner, address, until_s - now_s)
        return [
            ReplicaLease(name=name, owner=holder, address=place) for name, holder, place in map(restore_values, rows)
        ]

    async def release_leases(self, names: Collection[str], *, owner: str) -> None:
        await self._call("release_leases", sorted(names), owner)
