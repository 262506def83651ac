"""A store with rows in every table, and awkward values in them: for tests that carry them elsewhere."""

from dataclasses import replace

from gateway.contracts.storage.grants import AskBefore
from gateway.contracts.storage.keys import StoredKey
from gateway.contracts.storage.responses import StoredConversation, StoredResponse
from gateway.contracts.storage.store import HiddenTurn, Store, StoredService, WorkerService
from gateway.contracts.storage.usage import MOST_USAGE, StoredUsage
from tests.plugins.stores.contract import AWKWARD
from tests.plugins.stores.records import approval, audit_line, event, grant, memory, new, run, step, write

#: No text of these can be an id, but for all but the last: each is short.
NAMES = tuple(text for text in AWKWARD if 0 < len(text) < 99)
BYTES = b"\0\xff" * 150_000


async def fill(store: Store) -> None:
    """Put rows into every table of a store, which is open."""
    await _fill_general(store)
    await _fill_runs(store)
    await _fill_responses(store)
    for number, text in enumerate(AWKWARD):
        for owner in ("user:快速", "key:a\0b"):
            await store.remember(replace(memory(number, owner=owner), text=f"{text} fact {number}"), limit=9)
    for number in range(9):  # three of them are gone again, and so are their numbers
        await store.remember(memory(number, conversation=(None, "c\0d")[number % 2]), limit=6)
    for number, name in enumerate(NAMES):
        turn = HiddenTurn(
            id=f"t{number}", run_id=name, start=0, end=2, before=[{"content": name}], behind=[{"é\ud800": None}]
        )
        await store.put_hidden(replace(turn, conversation=(None, name)[number % 2]), keys=[name], tenant="t", now_s=1.5)
        await store.record_answer(f"r{number}", keys=["common", name * 2], tenant=name, now_s=2.5)


async def _fill_general(store: Store) -> None:
    for number, text in enumerate(AWKWARD):
        await store.put_prompt(f"p{number}", text, tenant="acme", now_s=number / 3)
        await store.put_prompt("p", text, tenant=text[:99], now_s=number / 3)
    for name in NAMES:
        service = StoredService(name=name, config=BYTES if "a" in name else None, pins={name: "a" * 64}, updated_s=1.0)
        await store.put_service(service, expected=0)
        seen = WorkerService(worker=name, name=name, state="error", error=name, updated_s=70.5)
        await store.report_services(name, [seen, replace(seen, name="none", error=None)])
        await store.put_definitions({name: name})
        await store.get_or_create_secret(name)
        await store.end_session(name, until_s=9e9, now_s=1.0)
        await store.take_duty(name, owner=name, now_s=1.0, until_s=2.0)
        facts = {"tenant": name, "hint": name, "terms": name, "created_by": name, "created_s": 10.0}
        key = StoredKey(id=f"key {name}", name=name, sha256=name, **facts)  # type: ignore[arg-type]
        await store.add_key(key, most=99, audit=[audit_line("key_created", caller=name)])
    await store.rotate_key(
        replace(key, id="new", sha256="new", rotated_from=key.id, used_s=3.5), until_s=50.0, audit=()
    )
    rows = [StoredUsage("2026-11-30", name, name, name, name, name, name, 1, 1, cost=MOST_USAGE) for name in NAMES]
    rows.append(replace(rows[0], day="2026-11-29", model="", currency=""))
    await store.add_usage(rows, writer="w\0", number=1, now_s=4.5)
    await store.add_usage(rows[:1], writer="w\0", number=2, now_s=5.5)


async def _fill_runs(store: Store) -> None:
    for number, text in enumerate(AWKWARD):
        whose = {"run_id": f"run_{number}", "tenant": f"tenant {text[:99]}"}
        begun = run(
            f"run_{number}",
            tenant=whose["tenant"],
            caller=text[:99],
            conversation=text[:99] or None,
            idempotency_key=text[:99] or None,
            kind="tool",
            tool=text,
            client='{"name":"\\u0000"}',
            workflow=None if number % 2 else "w",
            fingerprint=f"f{number}",
            request=BYTES,
            progress=b"",
            error=text,
            effects=bool(number % 2),
            state=("awaiting_approval", "unknown")[number % 2],
            owner=None,
        )
        asked = approval(f"ap_{number}", arguments=f'{{"a":"{number}"}}', reason=text, user=text[:99], **whose)
        steps = (step(1, result=text, shown=None, answer=BYTES, **whose), step(2, tainted=True, **whose))
        parts = {"steps": steps, "events": (event(data=BYTES, **whose),), "audit": (audit_line(tool=text, **whose),)}
        await store.write(new(begun, approvals=(asked, approval(f"other_{number}", **whose)), **parts))
        await store.note_waiting_request(f"run_{number}", tenant=whose["tenant"], waiter=text[:99], until_s=9.5)
        granting = grant(f"gr_{number}", conversation=text[:99], expires_s=None if number % 2 else 9e9, **whose)
        await store.decide_approval(write(f"ap_{number}", tenant=whose["tenant"], comment=text, grant=granting))
        ask = AskBefore(
            id=f"ask_{number}", tenant="t", caller=text[:99], conversation="c", created_s=1.0, expires_s=9e9, user=None
        )
        await store.put_ask(ask)
    await store.write(
        new(run("ended", state="completed", answer=b"{}", updated_s=50.0), events=(event(run_id="ended"),))
    )
    await store.prune(before_s=60.0, limit=99)  # the last event is gone, and its number is not given again


async def _fill_responses(store: Store) -> None:
    await store.write(new(run("answering", state="completed")))
    for number, text in enumerate(AWKWARD):
        response = StoredResponse(
            id=f"resp_{number}",
            tenant="acme",
            caller="ann",
            state="in_progress",
            created_s=100.0 + number,
            run_id="answering",
            conversation="conv_1",
            background=bool(number % 2),
            request=BYTES,
            input=text.encode(),
            idempotency_key=text or None,
            fingerprint=text,
            decides=f"ap_{number}",
        )
        await store.put_conversation(
            StoredConversation(id="conv_1", tenant="acme", created_s=1.0, metadata=BYTES), now_s=2.0
        )
        await store.put_response(response)
        await store.append_answer(response.id, tenant="acme", fence=0, start=0, chunks=[b"", BYTES, b"a"])
        ended = replace(response, state="completed", output=text.encode())
        await store.put_response(ended, adds=[(f"item {text[:99]}", BYTES)], now_s=3.0)
    await store.delete_response("resp_1", tenant="acme")
