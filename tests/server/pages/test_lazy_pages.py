"""Pages that are made when a request comes that no other page takes."""

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from gateway.api.ops_pages import Handler
from gateway.server.pages.lazy_pages import LaterPages


async def page(request: web.Request) -> web.Response:
    return web.Response(text=request.match_info.get("id", "all"))


class Later:
    """The routes `/things`, `/things/{id}` and `POST /`; `n_asked` counts who asked for them."""

    def __init__(self) -> None:
        self.n_asked = 0

    async def router(self) -> web.UrlDispatcher:
        self.n_asked += 1
        router = web.UrlDispatcher()
        router.add_route("GET", "/things", page)
        router.add_route("GET", "/things/{id}", page)
        router.add_route("POST", "/", page)
        return router


async def served(later: Later, aiohttp_client: AiohttpClient) -> "AiohttpClient":
    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_get("/things/first", page)
    app.router.register_resource(LaterPages(later.router))
    return await aiohttp_client(app)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/things", 200, "all"),
        ("GET", "/things/a%2Fb", 200, "a/b"),
        ("POST", "/", 200, "all"),
        ("GET", "/nothing", 404, ""),
        ("GET", "/things/a/b", 404, ""),
    ],
)
async def test_lazy_pages_answer_requests_that_no_other_page_takes(
    aiohttp_client: AiohttpClient, method: str, path: str, status: int, text: str
) -> None:
    """With the variable parts of their paths, as in any application."""
    later = Later()
    client = await served(later, aiohttp_client)
    async with client.request(method, path) as response:
        assert response.status == status and (not text or await response.text() == text)
    assert later.n_asked == 1


@pytest.mark.parametrize(("path", "allowed"), [("/things", {"GET"}), ("/", {"GET", "HEAD", "POST"})])
async def test_unsupported_method_of_a_lazy_page_is_refused(
    aiohttp_client: AiohttpClient, path: str, allowed: set[str]
) -> None:
    """With those that the path has, whoever made its pages."""
    client = await served(Later(), aiohttp_client)
    async with client.delete(path) as response:
        assert response.status == 405 and {*response.headers["Allow"].split(",")} == allowed


async def test_lazy_page_failure_is_answered_behind_the_guard(aiohttp_client: AiohttpClient) -> None:
    """Behind the guard of all pages, which answers errors, and has refused strangers before."""
    asked: list[str] = []

    async def router() -> web.UrlDispatcher:
        asked.append("router")
        raise OSError("no such module")

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "key" not in request.query:
            return web.Response(status=401)
        try:
            return await handler(request)
        except OSError as error:
            return web.Response(status=500, text=str(error))

    app = web.Application(middlewares=[guard])
    app.router.register_resource(LaterPages(router))
    client = await aiohttp_client(app)
    async with client.get("/things") as response:
        assert response.status == 401 and asked == []
    async with client.get("/things?key=k") as response:
        assert (response.status, await response.text()) == (500, "no such module")


async def test_existing_pages_do_not_load_the_lazy_pages(aiohttp_client: AiohttpClient) -> None:
    """Their requests do not ask for others."""
    later = Later()
    client = await served(later, aiohttp_client)
    for path in ("/", "/things/first"):
        async with client.get(path) as response:
            assert response.status == 200
    assert later.n_asked == 0
