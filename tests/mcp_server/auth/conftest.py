"""An issuer for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.mcp_server.auth.issuer import Issuer, issuing


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        yield issuer
