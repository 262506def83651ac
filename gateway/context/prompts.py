"""The base prompts: configured ones, shared by all tenants, and the ones that each tenant stored.

Rule 1: a text that was read is cached until something changes. Reads and changes never overlap.
Rule 2: an id of the configuration wins over a stored one.
Rule 3: a stored prompt is read, listed and changed within its tenant. For other tenants it does not exist.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from cachetools import LRUCache

from gateway.config.values.scalars import parse_name
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store, StoredPrompt

#: The longest text that can be stored.
TEXT_LIMIT_BYTES: Final = 256 * 1024
_CACHE_BYTES = 16 * 1024 * 1024
# Of an entry besides its text, roughly: an id that does not exist is kept, too, and must not be free.
_ENTRY_BYTES = 512


class PromptError(ValueError):
    """A refused change of a base prompt. The text contains the reason and the next step."""


class ConfiguredPromptError(PromptError):
    """The refusal for a prompt that is in the configuration."""

    def __init__(self, prompt_id: str) -> None:
        super().__init__(
            f"prompt {prompt_id!r} stands in the configuration: change it under 'prompts' there, or store yours under "
            "another id"
        )


class PromptIdError(PromptError):
    """The refusal of an id that a prompt cannot have."""


class PromptTextError(PromptError):
    """The refusal of a text that is too long."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"the text has {size_bytes} bytes of UTF-8; a prompt may have {TEXT_LIMIT_BYTES}: shorten it")


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """A base prompt and its source. Only a stored one has `version` and `updated_s` (Unix time)."""

    id: str
    text: str
    source: Literal["configured", "stored"]
    version: int | None = None
    updated_s: float | None = None


class BasePrompts:
    """The implementation of `gateway.contracts.plugin.Prompts`, with the changes and the list for our own API."""

    def __init__(self, configured: Mapping[str, str], store: Store, *, clock: Clock) -> None:
        self._configured = MappingProxyType(dict(configured))
        self._store = store
        self._clock = clock
        self._texts: LRUCache[tuple[str, str], str | None] = LRUCache(_CACHE_BYTES, getsizeof=_estimate_size)
        self._turn = asyncio.Lock()
        self._generation: int | None = None
        self._known: frozenset[tuple[str, str, int, float]] | None = None
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    async def read_text(self, prompt_id: str, *, tenant: str) -> str | None:
        """Return the text, or None if the tenant has no such prompt. Raises StoreError."""
        if prompt_id in self._configured:
            return self._configured[prompt_id]
        key = tenant, prompt_id
        if key in self._texts:
            return self._texts[key]
        if not _is_name(prompt_id):
            return None
        async with self._turn:
            if key in self._texts:
                return self._texts[key]
            stored = await self._store.get_prompt(prompt_id, tenant=tenant)
            text = None if stored is None else stored.text
            if _estimate_size(text) <= _CACHE_BYTES:
                self._texts[key] = text
            return text

    async def find(self, prompt_id: str, *, tenant: str) -> ListedPrompt | None:
        """Return the stored or configured prompt, read past the cache, or None. Raises StoreError."""
        if prompt_id in self._configured:
            return ListedPrompt(prompt_id, self._configured[prompt_id], "configured")
        stored = await self._store.get_prompt(prompt_id, tenant=tenant) if _is_name(prompt_id) else None
        return None if stored is None else _build_listed_prompt(stored)

    async def list_page(self, *, tenant: str, after: str = "", limit: int) -> Sequence[ListedPrompt]:
        """Return the first `limit` prompts for the tenant behind the id `after`, in the order of their ids.

        Raises StoreError.
        """
        stored = await self._store.list_prompts(tenant=tenant, after=after, limit=limit)
        found = {prompt.id: _build_listed_prompt(prompt) for prompt in stored}
        for prompt_id, text in self._configured.items():
            if prompt_id > after:
                found[prompt_id] = ListedPrompt(prompt_id, text, "configured")
        return [found[prompt_id] for prompt_id in sorted(found)[:limit]]

    async def list_names(self, *, tenant: str) -> Sequence[str]:
        """Return the ids that the tenant can use, in their order. Raises StoreError."""
        return [prompt.id for prompt in await self.list_page(tenant=tenant, limit=sys.maxsize)]

    async def store_prompt(self, prompt_id: str, text: str, *, tenant: str) -> ListedPrompt:
        """Store a new prompt or a new text. Raises PromptError, StoreError."""
        self._refuse_configured(prompt_id)
        try:
            parse_name(prompt_id)
        except ValueError as error:
            raise PromptIdError(f"the id of a prompt: {error}") from None
        size_bytes = len(text.encode())
        if size_bytes > TEXT_LIMIT_BYTES:
            raise PromptTextError(size_bytes)
        async with self._turn:
            try:
                now_s = self._clock.time()
                return _build_listed_prompt(await self._store.put_prompt(prompt_id, text, tenant=tenant, now_s=now_s))
            finally:
                self._clear_cache()

    async def delete(self, prompt_id: str, *, tenant: str) -> bool:
        """Delete a prompt. Return whether it existed. Raises PromptError, StoreError."""
        self._refuse_configured(prompt_id)
        if not _is_name(prompt_id):
            return False
        async with self._turn:
            try:
                return await self._store.delete_prompt(prompt_id, tenant=tenant)
            finally:
                self._clear_cache()

    async def refresh(self) -> bool:
        """Check for changes by other processes. Return whether prompts changed since the last check.

        Raises StoreError.
        """
        async with self._turn:
            generation = await self._store.get_generation()
            if generation == self._generation:
                return False
            stored = await self._store.list_all_prompts()
            known = frozenset((one.tenant, one.id, one.version, one.updated_s) for one in stored)
            self._generation = generation
            if known == self._known:  # something else has changed
                return False
            self._known = known
            self._clear_cache()
            return True

    def _refuse_configured(self, prompt_id: str) -> None:
        if prompt_id in self._configured:
            raise ConfiguredPromptError(prompt_id)

    def _clear_cache(self) -> None:
        """Clear the cache, also after a failure or a cancellation: the store may have made the change."""
        self._texts.clear()
        self._version += 1


def _build_listed_prompt(stored: StoredPrompt) -> ListedPrompt:
    return ListedPrompt(stored.id, stored.text, "stored", stored.version, stored.updated_s)


def _is_name(prompt_id: str) -> bool:
    try:
        parse_name(prompt_id)
    except ValueError:
        return False
    return True


def _estimate_size(text: str | None) -> int:
    # Python keeps a text in up to four bytes a character.
    return _ENTRY_BYTES + 4 * len(text or "")
