"""Exchanges of tests, by the plain names of their facts, in whichever record a fact stands."""

from dataclasses import fields

from gateway.contracts.exchange import Exchange
from gateway.contracts.records import replace

_RECORDS = {field.name: field.default for field in fields(Exchange) if hasattr(field.default, "__dataclass_fields__")}


def new_exchange(**facts: object) -> Exchange:
    """Return an exchange with these facts."""
    own = {name: value for name, value in facts.items() if name in Exchange.__dataclass_fields__}
    more = {name: value for name, value in facts.items() if name not in own}
    return changed(Exchange(**own), **more)  # type: ignore[arg-type]


def changed(exchange: Exchange, **facts: object) -> Exchange:
    """Return the exchange with these facts changed."""
    changes: dict[str, object] = {}
    for name, default in _RECORDS.items():
        own = {fact: facts.pop(fact) for fact in type(default).__dataclass_fields__ if fact in facts}
        if own:
            changes[name] = replace(getattr(exchange, name), **own)
    return replace(exchange, **changes, **facts)  # type: ignore[arg-type]


def fact_of(exchange: Exchange, name: str) -> object:
    """Return the fact of this name."""
    records = [exchange, *(getattr(exchange, record) for record in _RECORDS)]
    return next(getattr(record, name) for record in records if hasattr(record, name))
