"""Pages that are made when a request comes that no other page takes."""

from collections.abc import Awaitable, Callable

from aiohttp import web


class LaterPages(web.PlainResource):
    """The resource of all of them. aiohttp tries it last, since its own path is `/`. `router` returns their routes.

    It takes each request, and finds the page when the request is handled: the guard in front of all pages has seen it
    then. So an unknown caller has nothing made, and an error has an answer as any other.
    """

    def __init__(self, router: Callable[[], Awaitable[web.UrlDispatcher]]) -> None:
        super().__init__("/")
        self._router = router
        self._route = web.ResourceRoute("*", self._answer_request, self)

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo, set[str]]:
        """Return the handler of all pages."""
        del request
        return web.UrlMappingMatchInfo({}, self._route), set()

    async def _answer_request(self, request: web.Request) -> web.StreamResponse:
        """Answer with the page. Raises HTTPNotFound, HTTPMethodNotAllowed, and whatever the page raises."""
        found = await (await self._router()).resolve(request)
        refusal = found.http_exception
        if refusal is None:
            request.match_info.update(found)
            return await found.handler(request)
        methods = set(refusal.allowed_methods) if isinstance(refusal, web.HTTPMethodNotAllowed) else set()
        for resource in request.app.router.resources():
            if resource is not self:
                methods |= (await resource.resolve(request))[1]
        raise web.HTTPMethodNotAllowed(request.method, methods) if methods else web.HTTPNotFound
