"""Fixtures of the tests of tools."""

import pytest
from pytest_aiohttp import AiohttpServer

from tests.plugins.tools.site import Site


@pytest.fixture
def site(aiohttp_server: AiohttpServer) -> Site:
    return Site(aiohttp_server)
