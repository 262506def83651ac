"""The rules for approvers of calls (`approvals.self`, `require`, links) that span several keys."""

from collections.abc import Iterator

from gateway.config.document import Document
from gateway.config.schema.approvals import LINK_PREFIX
from gateway.config.schema.keys import KeySettings
from gateway.config.schema.settings import Settings
from gateway.config.serve_checks import is_keyless


def check_decisions(document: Document) -> None:
    """Report rules about decisions that cannot hold, and links that lead nowhere."""
    if is_keyless(document):
        if document.get("approvals", "self") == "refuse":
            text = "without keys all clients are one caller, so no other could approve: add keys, or write allow"
            document.complain(("approvals", "self"), text)
        if document.get("approvals", "require"):
            text = "without keys all clients are one caller, so no second key could approve: add keys, or remove it"
            document.complain(("approvals", "require"), text, key=True)
    for path in document.iterate_matches("keys", "*", "name"):
        name = document.get(*path)
        if isinstance(name, str) and name.startswith(LINK_PREFIX):
            document.complain(path, f"links to approvals have such names: choose one without {LINK_PREFIX!r}")
    for path in document.iterate_matches("approvals", "notify", "*", "links"):
        if document.get(*path) is None:
            continue
        if document.get("public_url") is None and document.get("console", "url") is None:
            document.complain(path, "needs public_url: where do these links lead?", key=True)
        elif document.get("console", "enabled") is False:
            document.complain(path, "needs the console, which is off: the page of a link is one of it", key=True)


def list_decision_warnings(settings: Settings) -> Iterator[str]:
    """Yield likely mistakes in the rules for approvers: for `gateway check-config`."""
    refuses = settings.approvals.self_ == "refuse"
    both = [key.name for key in settings.keys if {"context", "approve"} <= set(key.scopes)]
    if both:
        so = "may approve no call of its own" if refuses else "may approve its own calls"
        yield (
            f"keys with both scopes, 'context' and 'approve' ({', '.join(both)}): such a key {so}. That suits a person "
            "who answers a chat; leave 'approve' out for a program that runs by itself"
        )
    serve = settings.mcp.serve
    if settings.runtime_keys.enabled or (serve is not None and serve.oauth is not None):
        return  # the configuration does not name all approvers
    for key in settings.keys:
        if not {"context", "tools"}.isdisjoint(key.scopes):
            yield from _list_too_few_deciders(settings, key, refuses=refuses)


def _list_too_few_deciders(settings: Settings, key: KeySettings, *, refuses: bool) -> Iterator[str]:
    """Yield warnings about calls of a key that too few keys may approve."""
    links = {entry.links.as_ for entry in settings.approvals.notify if entry.links is not None}
    names = {one.name for one in settings.keys if "approve" in one.scopes and one.tenant_name == key.tenant_name}
    able = len(names - {key.name} if refuses else names) + len(links)
    needed = max((one.approvals for one in settings.approvals.require), default=1)
    if refuses and able == 0:
        yield (
            f"approvals.self is refuse, and no other key of the tenant {key.tenant_name!r} has the scope 'approve', so "
            f"no call of {key.name!r} can be approved: give another key that scope"
        )
    elif able < needed and needed > 1:
        yield (
            f"approvals.require asks for {needed} keys, and {able} of the tenant {key.tenant_name!r} can approve calls "
            f"of {key.name!r}: give more keys the scope 'approve'"
        )
