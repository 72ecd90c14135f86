"""Direct ↔ scheduled while work waits in every state: nothing is lost, nothing runs twice, nobody needs a leader."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest

from queueapp.store.configuration import PoolConf
from queueapp.store.records import Completed
from tests.lua.harness import LEASE_MS, Shard, completed


def go(shard: Shard, dispatch: Literal["direct", "scheduled"], **options: Any) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf(dispatch=dispatch, **options))


def conf(shard: Shard, name: str) -> bytes | None:
    return shard.client.hget(shard.keys["conf"], name)  # type: ignore[return-value]  # redis-py has one type for sync and async


def armed(shard: Shard, key: str) -> bool:
    return bool(shard.client.exists(shard.keys[key]))


def everywhere(shard: Shard) -> tuple[list[str], list[str], list[str]]:
    """A scheduled pool with jobs in ready, pending and ingress."""
    term = shard.schedule(policy="fifo")
    ids = shard.add(*(shard.job() for _ in range(6)))
    assert shard.dispatch(term, window=3).jobs == 3
    late = shard.add(*(shard.job() for _ in range(3)))
    return ids[:3], ids[3:], late


def drained(shard: Shard, *, most: int = 50) -> list[str]:
    """What cycles of one worker run until nothing comes any more, in order."""
    found: list[str] = []
    finished: list[Completed] = []
    for seq in itertools.count(1):
        answer = shard.store.cycle("w", seq, want=2, begin=2, lease_ms=LEASE_MS, finished=finished)
        finished = [completed(job) for job in answer.jobs]
        found += [job.id for job in answer.jobs]
        if not answer.jobs and not answer.runnable:
            return found
        assert seq < most
    raise AssertionError


def test_to_direct_ready_goes_first_then_the_walk_and_ingress_needs_no_leader(shard: Shard) -> None:
    ready, pending, ingress = everywhere(shard)
    go(shard, "direct", policy="fifo")
    assert (conf(shard, "mode"), conf(shard, "leftover")) == (None, b"1")
    assert armed(shard, "wake")
    assert [job.id for job in shard.lease(2)] == ready[:2]
    assert drained(shard) == [ready[2], *pending, *ingress]
    assert conf(shard, "leftover") is None
    assert not armed(shard, "ingress")


def test_to_direct_a_lease_takes_from_ready_and_from_the_walk_at_once(shard: Shard) -> None:
    ready, pending, _ = everywhere(shard)
    go(shard, "direct", policy="fifo")
    assert [job.id for job in shard.lease(5)] == [*ready, *pending[:2]]
    shard.store.promote_due()


def test_to_direct_new_work_goes_to_the_walk(shard: Shard) -> None:
    _, _, ingress = everywhere(shard)
    go(shard, "direct", policy="fifo")
    [new] = shard.add(shard.job())
    assert shard.client.xlen(shard.keys["ingress"]) == len(ingress)
    assert drained(shard)[-4:] == [*ingress, new]


def test_a_scheduler_admits_what_is_left_when_no_worker_calls(shard: Shard) -> None:
    *_, ingress = everywhere(shard)
    go(shard, "direct", policy="fifo")
    shard.store.promote_due()
    assert shard.client.xlen(shard.keys["ingress"]) == 0
    assert [job_id for _, _, job_id in shard.store.peek(20)][-3:] == ingress


def test_what_only_ingress_holds_wakes_a_worker(shard: Shard) -> None:
    shard.schedule()
    ids = shard.add(*(shard.job() for _ in range(40)))
    go(shard, "direct")
    assert armed(shard, "wake")
    answer = shard.store.cycle("w", 1, want=0, begin=0, lease_ms=LEASE_MS)
    assert answer.runnable
    assert drained(shard) == ids


def test_a_late_leader_admits_but_dispatches_nothing_in_a_direct_pool(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(shard.job(), shard.job())
    entries = [(entry.entry, entry.id, None) for entry in shard.store.read_ingress(term.nonce)]
    go(shard, "direct", policy="fifo")
    assert shard.store.admit(term, entries, order=shard.order).admitted == 2
    assert shard.store.dispatch(term, 250, 100, order=shard.order).jobs == 0
    assert drained(shard) == ids


def test_what_the_workers_admitted_is_a_duplicate_for_a_late_leader(shard: Shard) -> None:
    term = shard.schedule(policy="fifo")
    shard.add(shard.job(), shard.job())
    entries = [(entry.entry, entry.id, None) for entry in shard.store.read_ingress(term.nonce)]
    go(shard, "direct", policy="fifo")
    shard.store.promote_due()
    answer = shard.store.admit(term, entries, order=shard.order)
    assert (answer.admitted, answer.duplicates) == (0, 2)


def test_a_garbled_entry_does_not_stop_the_workers(shard: Shard) -> None:
    shard.schedule()
    shard.client.xadd(shard.keys["ingress"], {"x": "y"})
    [job_id] = shard.add(shard.job())
    go(shard, "direct")
    assert drained(shard) == [job_id]


def test_to_scheduled_the_pending_jobs_wait_for_the_leader_who_is_told(shard: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(3)))
    go(shard, "scheduled")
    assert (armed(shard, "wake:leader"), armed(shard, "wake")) == (True, False)
    assert not shard.lease(5)
    shard.dispatch(shard.term())
    assert [job.id for job in shard.lease(5)] == ids


def test_there_and_back_keeps_every_job_in_its_place(shard: Shard) -> None:
    ready, pending, ingress = everywhere(shard)
    go(shard, "direct", policy="fifo")
    go(shard, "scheduled", policy="fifo")
    assert conf(shard, "leftover") is None
    term = shard.term()
    shard.dispatch(term)
    assert [job.id for job in shard.lease(20)] == [*ready, *pending, *ingress]


def test_ready_jobs_that_nobody_leases_after_the_change_go_back_too(shard: Shard) -> None:
    ready, pending, ingress = everywhere(shard)
    go(shard, "direct", policy="fifo")
    shard.now_ms += 30_000
    shard.store.promote_due()
    assert not armed(shard, "ready")
    assert drained(shard) == [*ready, *pending, *ingress]


@pytest.mark.parametrize("paused", [False, True])
def test_a_direct_pool_pays_no_command_more(shard: Shard, paused: bool) -> None:
    """Nothing of scheduled dispatch is looked for where it never was."""
    go(shard, "direct", paused=paused)
    touched: set[str] = set()
    with shard.client.monitor() as monitor:
        shard.add(shard.job(), shard.job(delay_ms=5))
        shard.now_ms += 5
        shard.store.cycle("w", 1, want=2, begin=2, lease_ms=LEASE_MS)
        shard.store.promote_due()
        shard.client.echo("that was all")
        for event in monitor.listen():
            if event["client_type"] == "lua":
                touched |= {word.removeprefix(shard.keys.prefix) for word in event["command"].split(" ")[1:]}
            elif event["command"].startswith("ECHO"):
                break
    assert not touched & {"ingress", "ready", "entered", "corrections", "wake:leader", "dispatched", "window"}
