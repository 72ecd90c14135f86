"""Scheduled dispatch, the way in: enqueue → ingress → pending under a leader's term, whoever dies between two calls."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.errors import Fenced
from queueapp.states import State
from queueapp.store.records import Returned
from tests.lua.harness import Shard, completed, failed
from tests.lua.keyed import use


def state(shard: Shard, job_id: str) -> State:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.state


def stat(shard: Shard, name: str) -> int:
    return int(shard.client.hget(shard.keys["stats"], name) or 0)


def size(shard: Shard) -> int:
    return int(shard.client.xlen(shard.keys["ingress"]))


def test_a_direct_pool_has_no_ingress(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    assert state(shard, job_id) is State.PENDING
    assert not shard.client.exists(shard.keys["ingress"], shard.keys["wake:leader"])


def test_enqueue_writes_the_row_and_an_entry_with_what_a_rank_needs(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(
        shard.job("acme", lane="mail", priority=-7, tier="continue", cost=2.5, deadline_ms=shard.now_ms + 9)
    )
    assert state(shard, job_id) is State.INGRESS
    assert not shard.client.exists(shard.keys["walk"], shard.keys.queue("acme", "mail"))
    assert shard.client.zrange(shard.keys["wake:leader"], 0, -1) == [b"i"]
    assert not shard.lease()
    [entry] = shard.store.read_ingress("me")
    assert (entry.id, entry.tenant, entry.lane, entry.tier) == (job_id, "acme", "mail", "continue")
    assert (entry.priority, entry.cost, entry.deadline_ms) == (-7, 2.5, shard.now_ms + 9)
    assert (entry.ready_ms, entry.seq, entry.keys) == (shard.now_ms, 1, False)
    shard.admit(term)


def test_an_undeclared_cost_is_told_as_it_is_estimated(shard: Shard) -> None:
    [first] = shard.add(shard.job())
    [leased] = shard.lease()
    shard.now_ms += 400
    shard.store.complete([completed(leased, run_ms=400)])
    term = shard.schedule()
    shard.add(shard.job(), shard.job(keys=(use("customer:7"),)))
    assert [(entry.cost, entry.keys) for entry in shard.store.read_ingress("me")] == [(400, False), (400, True)]
    shard.admit(term)
    assert first


def test_a_repeated_enqueue_makes_no_second_entry(shard: Shard) -> None:
    term = shard.schedule()
    job = shard.job(idempotency="digest")
    shard.add(job)
    shard.add(job)
    [other] = shard.store.enqueue([shard.job(idempotency="digest")])
    assert (other.outcome, other.id, size(shard)) == ("exists", job.id, 1)
    shard.admit(term)


def test_admission_makes_jobs_pending_in_order_and_clears_their_entries(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job(tenant) for tenant in "cab"))
    answer = shard.admit(term)
    assert (answer.admitted, answer.duplicates, answer.garbled) == (3, 0, 0)
    assert {state(shard, job_id) for job_id in ids} == {State.PENDING}
    assert [job_id for _, _, job_id in shard.store.peek(5)] == ids
    assert size(shard) == 0
    assert shard.store.read_ingress(term.nonce) == []
    assert stat(shard, "admitted") == 3


def test_a_term_that_is_over_admits_nothing(shard: Shard) -> None:
    old = shard.schedule()
    shard.add(shard.job())
    entries = [(entry.entry, entry.id, None) for entry in shard.store.read_ingress(old.nonce)]
    new = shard.term()
    before = shard.snapshot()
    with pytest.raises(Fenced):
        shard.store.admit(old, entries, order=shard.order)
    assert shard.snapshot() == before
    assert shard.store.admit(new, entries, order=shard.order).admitted == 1


def test_a_new_leader_admits_what_the_old_one_read(shard: Shard) -> None:
    """The leader died between its read and its admission."""
    old = shard.schedule()
    ids = shard.add(*(shard.job() for _ in range(3)))
    assert len(shard.store.read_ingress(old.nonce, 2)) == 2
    new = shard.term()
    read = shard.store.read_ingress(new.nonce)
    assert [entry.id for entry in read] == ids
    assert shard.store.admit(new, [(entry.entry, entry.id, None) for entry in read], order=shard.order).admitted == 3


def test_a_frozen_leader_that_reads_once_more_takes_nothing_away(shard: Shard) -> None:
    frozen = shard.schedule()
    [job_id] = shard.add(shard.job())
    new = shard.term()
    assert [entry.id for entry in shard.store.read_ingress(new.nonce)] == [job_id]
    assert [entry.id for entry in shard.store.read_ingress(frozen.nonce)] == [job_id]
    assert shard.admit(new).admitted == 1


def test_a_repeat_finds_the_jobs_admitted(shard: Shard) -> None:
    """The reply of the admission was lost."""
    term = shard.schedule()
    shard.add(shard.job(), shard.job())
    entries = [(entry.entry, entry.id, None) for entry in shard.store.read_ingress(term.nonce)]
    shard.store.admit(term, entries, order=shard.order)
    before = shard.snapshot()
    again = shard.store.admit(term, entries, order=shard.order)
    assert (again.admitted, again.duplicates) == (0, 2)
    assert shard.snapshot() == before


def test_two_entries_of_one_job_admit_it_once(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    entries: Any = shard.client.xrange(shard.keys["ingress"])
    [(_, fields)] = entries
    shard.client.xadd(shard.keys["ingress"], fields)
    answer = shard.admit(term)
    assert (answer.admitted, answer.duplicates, size(shard)) == (1, 1, 0)
    assert stat(shard, "duplicates") == 1
    assert [taken for _, _, taken in shard.store.peek(5)] == [job_id]


@pytest.mark.parametrize("fields", [{"x": "y"}, {"j": "nonsense"}, {"j": "a|b|c|d|e|f|g|h|i|j"}, {"j": b"\xff|"}])
def test_a_garbled_entry_is_counted_and_stops_nobody(shard: Shard, fields: dict[Any, Any]) -> None:
    term = shard.schedule()
    shard.client.xadd(shard.keys["ingress"], fields)
    shard.add(shard.job())
    answer = shard.admit(term)
    assert (answer.admitted, answer.garbled, size(shard)) == (1, 1, 0)
    assert stat(shard, "garbled") == 1


@pytest.mark.parametrize("way", ["cancel", "move", "expire"])
def test_who_leaves_ingress_leaves_its_entry_to_the_next_admission(shard: Shard, way: str) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job(expires_after_ms=1_000))
    match way:
        case "cancel":
            assert shard.store.cancel([job_id]) == ["cancelled"]
        case "move":
            assert shard.store.move_to_dlq([job_id], "why") == ["moved"]
        case _:
            shard.now_ms += 1_000
            assert shard.store.promote_due().expired == 1
    assert size(shard) == 1
    assert shard.store.verify() == []
    answer = shard.admit(term)
    assert (answer.admitted, answer.duplicates, size(shard)) == (0, 1, 0)
    assert int(shard.client.hget(shard.keys["counts"], "w") or 0) == 0


def test_due_and_redriven_jobs_come_through_ingress(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    [late] = shard.add(shard.job(delay_ms=100))
    [died] = shard.add(shard.job())
    shard.dispatch(term)
    [leased] = shard.lease()
    shard.store.fail([failed(leased)])
    assert shard.store.retry_from_dlq([died]) == ["retried"]
    shard.now_ms += 100
    assert shard.store.promote_due().pending == 1
    assert (state(shard, late), state(shard, died)) == (State.INGRESS, State.INGRESS)
    assert [entry.id for entry in shard.store.read_ingress("me")] == [died, late]
    assert shard.admit(term).admitted == 2
    assert [job_id for _, _, job_id in shard.store.peek(5)] == [died, late]
    shard.dispatch(term)
    assert [(job.id, job.attempts) for job in shard.lease(2)] == [(died, 2), (late, 1)]


def test_another_attempt_comes_through_ingress(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job(max_attempts=3))
    shard.dispatch(term)
    shard.store.fail([failed(shard.lease()[0], retry_ms=50)])
    shard.now_ms += 50
    shard.store.promote_due()
    assert state(shard, job_id) is State.INGRESS
    shard.dispatch(term)
    assert [(job.id, job.attempts, job.errors) for job in shard.lease()] == [(job_id, 2, 1)]


def test_what_is_given_back_does_not_wait_for_admission(shard: Shard) -> None:
    term = shard.schedule()
    [job_id] = shard.add(shard.job())
    shard.dispatch(term)
    [leased] = shard.lease()
    shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts)])
    assert state(shard, job_id) is State.PENDING
    assert size(shard) == 0
    assert shard.client.zrange(shard.keys["wake:leader"], 0, -1) == [b"i"]


def test_a_row_that_nobody_can_read_is_set_aside(shard: Shard) -> None:
    term = shard.schedule()
    [good, bad] = shard.add(shard.job(), shard.job())
    shard.client.delete(shard.keys.job(bad))
    shard.client.sadd(shard.keys.job(bad), "what is this")
    answer = shard.admit(term)
    assert (answer.admitted, answer.duplicates) == (1, 1)
    assert shard.client.smembers(shard.keys["quarantine"]) == {bad.encode()}
    assert [job_id for _, _, job_id in shard.store.peek(5)] == [good]
    shard.client.delete(shard.keys.job(bad))
