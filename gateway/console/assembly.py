"""The console of one worker, put together from its pages. The first request that needs it imports this."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeAlias

from gateway.approvals.link_desk import LinkDesk
from gateway.console.api_client import ApiClient
from gateway.console.event_hub import Live
from gateway.console.feature_pages import collect_entries, collect_pages
from gateway.console.middleware import Conditions, Console
from gateway.console.pages.approvals.approval import ApprovalPage
from gateway.console.pages.approvals.bulk_decision import Several
from gateway.console.pages.approvals.inbox import Inbox
from gateway.console.pages.grants import RememberedPage
from gateway.console.pages.keys import KeysPage
from gateway.console.pages.link import LinkPage
from gateway.console.pages.memories import Memories
from gateway.console.pages.playground import Playground
from gateway.console.pages.prompts import PromptsPage
from gateway.console.pages.run import RunDetailPage
from gateway.console.pages.runs import RunList
from gateway.console.pages.service_form import ServiceForm
from gateway.console.pages.services import Services
from gateway.console.pages.status import StatusPage
from gateway.console.pages.tools import ToolsPage
from gateway.console.pages.upstreams import Upstreams
from gateway.console.pages.workflows import WorkflowsPage
from gateway.console.rendering import TemplateRenderer
from gateway.console.request import Visit
from gateway.console.session import Sessions

#: The secret that signs sessions, their lifetime in seconds, and the time now (Unix).
SessionFacts: TypeAlias = tuple[bytes, Callable[[], float], Callable[[], float]]


@dataclass(frozen=True, slots=True)
class ConsoleHandle:
    """A console. `leave` ends its open pages, `close` its connections too."""

    console: Console
    leave: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


class Assemble(Protocol):
    """The type of `assemble`."""

    def __call__(
        self,
        rendering: TemplateRenderer,
        *,
        sockets: Mapping[str, str],
        conditions: Conditions,
        sessions: SessionFacts,
        links: LinkDesk,
    ) -> ConsoleHandle: ...


@cache
def compile_templates() -> TemplateRenderer:
    """Return the templates of this process, compiled. The first call takes half a second: call it in a thread."""
    rendering = TemplateRenderer()
    rendering.compile()
    return rendering


def assemble(
    rendering: TemplateRenderer,
    *,
    sockets: Mapping[str, str],
    conditions: Conditions,
    sessions: SessionFacts,
    links: LinkDesk,
) -> ConsoleHandle:
    """Return the console of the worker that listens on these sockets, by the names of their addresses.

    `sessions` are the secret, the lifetime in seconds and the clock of sessions. `links` decide without one.
    """
    secret, lifetime_s, now_s = sessions
    client = ApiClient(sockets["listen"], admin=sockets.get("admin.listen"))

    async def is_valid(visit: Visit) -> bool:
        return await console.is_valid(visit)

    inbox = Inbox(rendering, live := Live(lambda *news: inbox.render_event(*news), is_valid=is_valid), now_s)
    others = (
        *(Several(now_s), ApprovalPage()),
        *(
            RunList(now_s),
            RunDetailPage(live, now_s),
            WorkflowsPage(),
            Playground(),
            PromptsPage(),
            Memories(),
            RememberedPage(),
        ),
        *(ToolsPage(), ServiceForm(), Services(), KeysPage(now_s)),
        *(StatusPage(), Upstreams(now_s)),
    )
    pages = (*inbox.list_pages(), *(page for each in others for page in each.list_pages()), *collect_pages(now_s))
    signing = Sessions(secret, lifetime_s=lifetime_s, now_s=now_s)
    linked = LinkPage(rendering, links)
    console = Console(
        pages,
        conditions=conditions,
        sessions=signing,
        client=client,
        rendering=rendering,
        links=linked,
        entries=collect_entries(),
    )

    async def close() -> None:
        await live.close()
        await client.close()

    return ConsoleHandle(console, live.close, close)
