"""The limits of one worker: which rules a request has, whether they have room for it, and what it used.

1. `list_caller_rules`, `list_model_rules` and `list_upstream_rules` return the rules of a request, the same each time.
2. `reserve_places` takes a place in all rules, or in none and raises. `Reservation.close` gives the places back, once.
3. Tokens are reserved at the beginning, by an estimate, and corrected at the end (`reservation.py`).

Limits fail closed: where a rule cannot be counted, its requests are refused.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

from gateway.contracts.allowance import Allowance, LimitScope, LimitUsage
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.model_names import MODEL_CHARS, is_model_match
from gateway.contracts.plugin import Counters
from gateway.limits.budgets import Budgets
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import LimitRule, Over, build_key_id, do_nothing
from gateway.limits.limit_status import list_rule_usage
from gateway.limits.refusal import build_limit_error, build_ratelimit_fields
from gateway.limits.reservation import LIMITED, Reservation, RulePlaces

log = logging.getLogger("gateway")

#: The log has at most one line about a rule in this time.
LOG_S: Final = 60.0
#: The rules of so many models are remembered: clients use a few of them.
MODELS: Final = 256
_NONE: Final[Mapping[str, Allowance]] = MappingProxyType({})


class Limiter:
    """The limits of one configuration; those of keys come with their callers. What `meters` counted outlives it.

    Where gateways share limits, a request may have to wait until more of them is here (`UndecidedError`).

    `clock` is that of all workers (monotonic). `has_ledger`: usage is recorded, so that budgets can be counted.
    `catch_up` closes the reservations of requests whose tokens are not read yet; None: there are none.
    """

    def __init__(
        self,
        meters: Meters,
        *,
        clock: Callable[[], float],
        budgets: Budgets,
        counters: Counters,
        has_ledger: bool = True,
        catch_up: Callable[[], None] | None = None,
        tenants: Mapping[str, Allowance] = _NONE,
        models: Mapping[str, Allowance] = _NONE,
        upstreams: Mapping[str, Allowance] = _NONE,
    ) -> None:
        self._meters = meters
        self.clock = clock
        self._budgets = budgets
        self._counters = counters
        self._has_ledger = has_ledger
        self._catch_up = catch_up or do_nothing
        self._tenants, self._models, self._upstreams = tenants, models, upstreams
        #: Whether models or upstreams have limits.
        self.has_targets = bool(models or upstreams)
        self._target_tokens = any(map(_counts_tokens, (*models.values(), *upstreams.values())))
        self._rules: WeakValueDictionary[tuple[LimitScope, str], LimitRule] = WeakValueDictionary()
        self._configured: set[LimitRule] = set()  # of tenants, models and upstreams
        self._of_model: dict[str, tuple[LimitRule, ...]] = {}

    def counts_tokens(self, caller: Caller) -> bool:
        """Return whether a limit counts the tokens of a caller's requests."""
        own = (caller.bounds.limits, self._tenants.get(caller.tenant))
        return self._target_tokens or any(map(_counts_tokens, own))

    def takes_shared_room(self, caller: Caller, upstreams: Iterable[str], *, by_model: bool) -> bool:
        """Return whether a request takes something that others want: places, or tokens that are reserved.

        That is in the limits of its tenant, of these upstreams, and of models where the body says which one it is for.
        """
        models = self._models.values() if by_model else ()
        return any(map(_is_taken, (self._tenants.get(caller.tenant), *map(self._upstreams.get, upstreams), *models)))

    def list_caller_rules(self, caller: Caller) -> tuple[LimitRule, ...]:
        """Return the rules of a key and its tenant. Raises GatewayError (overloaded) if one cannot be counted."""
        rules: list[LimitRule] = []
        if (allowance := caller.bounds.limits) is not None:
            rules.append(self._get_rule_of_key(caller, allowance))
        if (allowance := self._tenants.get(caller.tenant)) is not None:
            rules.append(self._get_rule("tenant", caller.tenant, allowance))
        return tuple(rules)

    def has_upstream(self, upstream: str) -> bool:
        """Return whether an upstream has limits."""
        return upstream in self._upstreams

    def list_model_rules(self, model: str) -> tuple[LimitRule, ...]:
        """Return the rules of a model: all whose patterns match count. Raises as `list_caller_rules`."""
        rules = self._of_model.get(model)
        if rules is None:
            matching = ((one, allowance) for one, allowance in self._models.items() if is_model_match(model, one))
            rules = tuple(self._get_rule("model", pattern, allowance) for pattern, allowance in matching)
            if len(model) <= MODEL_CHARS:
                if len(self._of_model) >= MODELS:
                    self._of_model.clear()
                self._of_model[model] = rules
        return rules

    def list_upstream_rules(self, upstream: str) -> tuple[LimitRule, ...]:
        """Return the rules of an upstream. Raises as `list_caller_rules`."""
        allowance = self._upstreams.get(upstream)
        return () if allowance is None else (self._get_rule("upstream", upstream, allowance),)

    def reserve_places(
        self,
        rules: Sequence[LimitRule],
        tokens: int | None = None,
        requests: int = 1,
        reserves: bool = True,
        exceeded: list[str] | None = None,
        guess: int | None = None,
    ) -> Reservation:
        """Take a place in all rules. Raises GatewayError, and takes none.

        The code is `rate_limit_exceeded` or `insufficient_quota`, or `overloaded` where a rule cannot be counted.

        `tokens`: so many the request will use at least; None: it uses none. `guess` is estimated without earlier
        requests: it is reserved where none has reported what it used. `requests` 0: it does not count as one.
        Without `reserves` tokens are only looked at: the calls of models that it makes take them. `exceeded` takes the
        soft limits that are exceeded, such as `requests_per_minute; scope=key`.
        """
        now_s = self.clock()
        reservation = Reservation([])
        places = reservation.places
        try:
            for rule in rules:
                meter, wanted = rule.meter, 0
                if tokens is not None and (most := rule.most_tokens):
                    wanted = meter.expected
                    if guess is not None and not meter.mean:
                        wanted = min(guess, rule.most_guess)
                    wanted = max(wanted, tokens)
                    if wanted > most:  # it would never fit, so it waits for an empty window
                        wanted = most
                if (
                    meter.ahead
                    and meter.looked_by is rule.most
                    and (spare := meter.ahead_spare + requests * meter.ahead_each - wanted) >= 0
                    and now_s < meter.ends_s
                ):
                    meter.ahead -= requests
                    meter.ahead_spare = spare
                    places.append(meter.find_places(wanted, requests))
                    continue
                if rule.shares is not None:
                    rule.check_lease(now_s, wanted)
                sums = meter.count_requests(requests, wanted, now_s, rule.bounds)
                place = meter.find_places(wanted, requests, is_held=rule.has_budget and wanted > 0)
                places.append(meter.take_places(place))
                if rule.shares is not None:
                    sums = rule.follow_share(sums)
                if sums is not None and (over := rule.find_exceeded(sums, now_s, wanted, requests)) is not None:
                    if not rule.allowance.soft:
                        raise self._build_refusal(reservation, over, rules, now_s, wanted=(requests, wanted))
                    self._record_reached_limit(over, now_s)
                    if exceeded is not None:
                        exceeded.append(f"{over.limit}; scope={rule.scope}")
        except GatewayError:
            reservation.close(LIMITED)
            raise
        if not reserves:
            reservation.drop_tokens()
        return reservation

    def _build_refusal(
        self, reservation: Reservation, over: Over, rules: Sequence[LimitRule], now_s: float, *, wanted: tuple[int, int]
    ) -> GatewayError:
        """Return the error of a request without room, or that of one which waits until more of the limit is here.

        `wanted` are the requests and the tokens that it needs of the limit.
        """
        reservation.close(LIMITED)
        self._catch_up()  # it says how much room is left
        rule, error = over.rule, build_limit_error(over, rules, now_s)
        if rule.may_have_more(over, now_s):
            self._counters.count("limit_waits", scope=rule.scope, limit=over.limit)
            requests, tokens = wanted
            return rule.wait_for_more(error, requests=requests, tokens=tokens)
        self._record_reached_limit(over, now_s)
        return error

    def reserve_more(
        self, reservation: Reservation, rules: Sequence[LimitRule], tokens: int, *, shown: Sequence[LimitRule]
    ) -> None:
        """Reserve so many tokens for a request that turns out to be longer than was known.

        `shown` are the rules whose room a refusal reports: all of the request. Raises GatewayError
        (rate_limit_exceeded) if there is no room; the places stay, until the reservation is closed.
        """
        now_s, places = self.clock(), reservation.places
        for number, (rule, before) in enumerate(zip(rules, places, strict=True)):
            meter, wanted = rule.meter, min(tokens, rule.most_tokens)
            if not before.reserved or wanted <= before.reserved:
                continue
            meter.correct_tick(0, wanted - before.reserved, before.tick)
            if before.is_held:
                meter.hold_tokens(wanted - before.reserved)
            places[number] = RulePlaces(meter, before.tick, wanted, before.made, is_held=before.is_held)
            if rule.shares is not None:
                rule.follow_share(None)
            if not rule.allowance.soft and (over := rule.find_outgrown_limit(wanted, now_s)) is not None:
                if rule.may_have_more(over, now_s):  # what a request turns out to use beyond its estimate may exceed
                    rule.ask_for_more(wanted - before.reserved)
                    continue
                self._record_reached_limit(over, now_s)
                raise build_limit_error(over, shown, now_s)

    def build_header_fields(self, rules: Sequence[LimitRule]) -> Mapping[str, str]:
        """Return the header fields that say how much room the rules have."""
        self._catch_up()
        return build_ratelimit_fields(rules, self.clock())

    def list_all_rules(self, callers: Iterable[Caller]) -> tuple[LimitRule, ...]:
        """Return the rules of these callers and all tenants, models and upstreams. Raises as `list_caller_rules`."""
        rules = [self._get_rule_of_key(one, limits) for one in callers if (limits := one.bounds.limits) is not None]
        rules += [self._get_rule("tenant", *item) for item in self._tenants.items()]
        rules += [self._get_rule("model", *item) for item in self._models.items()]
        rules += [self._get_rule("upstream", *item) for item in self._upstreams.items()]
        return tuple(rules)

    def list_usage(self, rules: Sequence[LimitRule]) -> Iterator[LimitUsage]:
        """Yield what is used of the limits of these rules."""
        self._catch_up()
        now_s = self.clock()
        for rule in rules:
            yield from list_rule_usage(rule, now_s)

    def _get_rule_of_key(self, caller: Caller, allowance: Allowance) -> LimitRule:
        return self._get_rule("key", caller.name, allowance, build_key_id(caller.tenant, caller.name))

    def _get_rule(self, scope: LimitScope, name: str, allowance: Allowance, own: str | None = None) -> LimitRule:
        own = own or name
        rule = self._rules.get((scope, own))
        if rule is not None and rule.allowance == allowance:  # that of a key may change
            return rule
        if allowance.has_budget and not (self._has_ledger or allowance.soft):
            raise GatewayError(
                "overloaded",
                f"The {scope} {name!r} has a budget, and this gateway records no usage to count it by: its operator "
                "has to set 'usage.enabled', or take the budget away.",
            )
        meter, shares = self._meters.get_meter(scope, own), self._meters.shares
        rule = LimitRule(scope, name, allowance, meter, self._budgets, own, self._catch_up, shares)
        self._rules[scope, own] = rule
        if scope != "key":
            self._configured.add(rule)
        return rule

    def _record_reached_limit(self, over: Over, now_s: float) -> None:
        """Count and log a limit that is reached."""
        rule = over.rule
        is_soft = rule.allowance.soft
        self._counters.count("limit_exceeded" if is_soft else "limit_refused", scope=rule.scope, limit=over.limit)
        rule.meter.count_exceeded(over.limit)
        if now_s - rule.meter.told_s >= LOG_S:
            rule.meter.told_s = now_s
            does = "and refuses nothing, being soft" if is_soft else "and refuses requests"
            value = getattr(rule.allowance, over.limit)
            log.warning("the limit %s: %s of the %s %r is reached, %s", over.limit, value, rule.scope, rule.name, does)


def _is_taken(allowance: Allowance | None) -> bool:
    """Return whether a request under way leaves less for others."""
    if allowance is None or allowance.soft:
        return False
    return allowance.concurrent is not None or allowance.tokens_per_minute is not None or allowance.has_budget


def _counts_tokens(allowance: Allowance | None) -> bool:
    return allowance is not None and (allowance.tokens_per_minute is not None or allowance.has_budget)
