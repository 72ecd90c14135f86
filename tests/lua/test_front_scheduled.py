"""The front door where a leader dispatches: parked jobs go to ingress, and what waits there can be changed."""

from __future__ import annotations

from queueapp.states import Outcome, State
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.records import DebounceUse, SingletonUse
from tests.lua.harness import Shard


def states(shard: Shard, *ids: str) -> list[State | None]:
    return [None if record is None else record.state for record in shard.reads.jobs(ids)]


def test_a_parked_job_comes_to_ingress_when_it_is_drawn(shard: Shard) -> None:
    term = shard.schedule()
    shard.store.configure(200, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=1_000))])
    answers = shard.store.enqueue([shard.job(parks=True) for _ in range(2)])
    assert [answer.outcome for answer in answers] == ["enqueued", "parked"]
    first, second = (answer.id for answer in answers)
    assert states(shard, first, second) == [State.INGRESS, State.BACKLOG]
    shard.now_ms += 1_000
    assert shard.store.backlog_promote(1).pending == 1
    assert states(shard, second) == [State.INGRESS]
    entries = shard.store.read_ingress(term.nonce)
    assert [entry.id for entry in entries] == [first, second]
    assert (
        shard.store.admit(term, [(entry.entry, entry.id, None) for entry in entries], order=shard.order).admitted == 2
    )


def test_a_job_in_ingress_takes_newer_arguments_and_a_chosen_one_does_not(shard: Shard) -> None:
    term = shard.schedule()
    window = DebounceUse(digest="d", period_ms=1_000)
    first = shard.job(debounce=window, payload=b'{"a":[1]}')
    shard.add(first)
    shard.now_ms += 1_000
    shard.store.promote_due()
    assert states(shard, first.id) == [State.INGRESS]
    [answer] = shard.store.enqueue([shard.job(debounce=window, payload=b'{"a":[2]}')])
    assert (answer.outcome, answer.id) == ("debounced", first.id)
    entries = shard.store.read_ingress(term.nonce)
    shard.store.admit(term, [(entry.entry, entry.id, None) for entry in entries], order=shard.order)
    assert shard.store.dispatch(term, 5, 5, order=shard.order).jobs == 1
    assert states(shard, first.id) == [State.READY]
    [answer] = shard.store.enqueue([shard.job(debounce=window, payload=b'{"a":[3]}')])
    assert (answer.outcome, answer.id != first.id) == ("enqueued", True)
    assert [job.payload for job in shard.lease(5)] == [b'{"a":[2]}']


def test_a_singleton_replaces_what_waits_in_ingress_and_what_is_chosen(shard: Shard) -> None:
    term = shard.schedule()
    single = SingletonUse(digest="s", mode="replace")
    [first] = shard.add(shard.job(singleton=single))
    [second] = shard.add(shard.job(singleton=single))
    entries = shard.store.read_ingress(term.nonce)
    admitted = shard.store.admit(term, [(entry.entry, entry.id, None) for entry in entries], order=shard.order)
    assert (admitted.admitted, admitted.duplicates) == (1, 1)
    assert shard.store.dispatch(term, 5, 5, order=shard.order).jobs == 1
    [third] = shard.add(shard.job(singleton=single))
    records = shard.reads.jobs([first, second, third])
    assert [record and (record.state, record.outcome) for record in records] == [
        (State.ENDED, Outcome.REPLACED),
        (State.ENDED, Outcome.REPLACED),
        (State.INGRESS, None),
    ]
