"""Base prompts in memory, for tests of what stands above a store."""

import asyncio

from gateway.contracts.storage.store import StoredPrompt, StoreError


class PromptsInMemory:
    """The part of a store that keeps prompts. `asked` lists the ids that were read; `gate` holds reads up."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], StoredPrompt] = {}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken = False
        self.changes = 0

    async def list_all_prompts(self) -> list[StoredPrompt]:
        return [self.kept[key] for key in sorted(self.kept)]

    async def list_prompts(self, *, tenant: str, after: str = "", limit: int) -> list[StoredPrompt]:
        return [self.kept[key] for key in sorted(self.kept) if tenant == key[1] and key[0] > after][:limit]

    async def get_prompt(self, prompt_id: str, *, tenant: str) -> StoredPrompt | None:
        self.asked.append(prompt_id)
        found = self.kept.get((prompt_id, tenant))
        await self.gate.wait()
        self._check()
        return found

    async def put_prompt(self, prompt_id: str, text: str, *, tenant: str, now_s: float) -> StoredPrompt:
        before = self.kept.get((prompt_id, tenant))
        version = 1 if before is None else before.version + 1
        self.kept[prompt_id, tenant] = stored = StoredPrompt(prompt_id, tenant, text, version, now_s)
        self.changes += 1
        self._check()
        return stored

    async def delete_prompt(self, prompt_id: str, *, tenant: str) -> bool:
        self._check()
        self.changes += 1
        return self.kept.pop((prompt_id, tenant), None) is not None

    async def get_generation(self) -> int:
        return self.changes

    def _check(self) -> None:
        if self.broken:
            raise StoreError("the disk is full")


class Wall:
    """A clock that stands still."""

    def monotonic(self) -> float:
        return 100.0

    def time(self) -> float:
        return 1_700_000_000.5
