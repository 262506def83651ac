"""Names for clients of aiohttp: those that models choose have threads of their own."""

import asyncio
import socket

import pytest
from gateways import until
from host_names import host_names

from gateway.net.dns import MOST
from gateway.net.resolver import Resolver


async def test_resolver_finds_ipv4_and_ipv6_addresses() -> None:
    """Each address comes once, with the port of the request."""
    with host_names({"up.example": ["127.0.0.2", "::1", "127.0.0.2"]}):
        found = await Resolver().resolve("up.example", 81)
    assert [(one["host"], one["port"], one["family"]) for one in found] == [
        ("127.0.0.2", 81, socket.AF_INET),
        ("::1", 81, socket.AF_INET6),
    ]


async def test_a_name_without_addresses_is_an_error() -> None:
    """The connector makes its own error of it."""
    with host_names({}), pytest.raises(OSError, match="not known"):
        await Resolver(for_models=True).resolve("nowhere.example", 80)


async def test_model_chosen_names_do_not_block_operator_lookups() -> None:
    """However many silent name servers a model names, upstreams and webhooks are found."""
    silent = [f"silent-{i}.example" for i in range(MOST)]
    with host_names({"up.example": ["127.0.0.1"]} | dict.fromkeys(silent)) as names:
        asked = [asyncio.create_task(Resolver(for_models=True).resolve(one, 80)) for one in silent]
        await until(lambda: all(names.asked[one] for one in silent))
        assert await Resolver().resolve("up.example", 80)
        names.go_on.set()
        await asyncio.wait(asked)
        assert all(isinstance(one.exception(), socket.gaierror) for one in asked)
