"""What a job waited for its limits, where it changes state meanwhile, and how long the sums are kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queueapp.store.records import DebounceUse
from queueapp.store.waits import Waits
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import configure_key, keyed
from tests.lua.test_trim import KEEP
from tests.lua.waits import blocks, limit, summed, waits


def test_a_retry_into_a_lane_that_is_held_back(shard: Shard) -> None:
    limit(shard, max_in_flight=1)
    (job_id, _) = shard.add(shard.job(max_attempts=2), shard.job())
    shard.now_ms += 10
    (job,) = shard.lease()
    shard.store.fail([failed(job, retry_ms=100)])
    (other,) = shard.lease()
    shard.now_ms += 300
    shard.store.promote_due()
    shard.now_ms += 50
    shard.store.complete([completed(other)])
    shard.now_ms += 5
    shard.lease()
    assert waits(shard, job_id) == Waits(backoff_ms=100, limits_ms=50, line_ms=215)


def test_new_arguments_of_a_job_in_line_change_nothing_of_what_it_waited(shard: Shard) -> None:
    use = DebounceUse(digest="d" * 16, period_ms=100)
    limit(shard, max_in_flight=1)
    shard.add(shard.job(), shard.job())
    (first,) = shard.lease()
    shard.now_ms += 50
    (job_id,) = shard.add(shard.job(debounce=use))
    shard.now_ms += 100
    shard.store.promote_due()
    shard.now_ms += 20
    assert shard.store.enqueue([shard.job(debounce=use, payload=b'{"a":[2]}')])[0].outcome == "debounced"
    shard.now_ms += 10
    shard.store.complete([completed(first)])
    (second,) = shard.lease()
    shard.store.complete([completed(second)])
    shard.now_ms += 500
    (job,) = shard.lease()
    assert (job.id, job.payload) == (job_id, b'{"a":[2]}')
    assert waits(shard, job_id) == Waits(schedule_ms=100, limits_ms=30, line_ms=500)


def test_what_a_leader_has_chosen_waits_in_line(shard: Shard) -> None:
    term = shard.schedule()
    limit(shard, max_in_flight=1)
    (_, second) = shard.add(shard.job(), shard.job())
    shard.now_ms += 10
    shard.dispatch(term)
    shard.now_ms += 20
    (first,) = shard.lease(2)
    shard.now_ms += 30
    shard.store.complete([completed(first)])
    shard.dispatch(term)
    shard.now_ms += 5
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=50, line_ms=15)


def test_back_from_ready_it_goes_on_where_it_was(shard: Shard) -> None:
    term = shard.schedule()
    limit(shard, paused=True)
    (job_id,) = shard.add(shard.job())
    shard.now_ms += 100
    limit(shard, clear=True)
    shard.dispatch(term)
    shard.now_ms += 10
    limit(shard, paused=True)  # it leaves ready
    assert shard.reads.job(job_id).state == "pending"  # type: ignore[union-attr]  # None would fail the test
    shard.now_ms += 200
    limit(shard, clear=True)
    shard.dispatch(term)
    shard.now_ms += 3
    shard.lease()
    assert waits(shard, job_id) == Waits(limits_ms=300, line_ms=13)


def test_back_from_ready_after_the_sums_have_gone(shard: Shard) -> None:
    """Nothing counts any more, and what it waited before is told all the same."""
    term = shard.schedule()
    (first, job_id) = shard.add(keyed(shard, "k"), keyed(shard, "k"))
    shard.dispatch(term)
    shard.now_ms += 100
    shard.store.cancel([first])
    shard.dispatch(term)
    assert blocks(shard) == {}
    shard.store.trim(**KEEP)
    shard.now_ms += 30_000  # nobody leases it
    shard.store.promote_due()
    assert shard.reads.job(job_id).state == "pending"  # type: ignore[union-attr]  # None would fail the test
    shard.now_ms += 5
    shard.dispatch(term)
    shard.lease()
    assert waits(shard, job_id) == Waits(limits_ms=100, line_ms=30_005)


def test_a_key_that_was_full_before_an_admission(shard: Shard) -> None:
    term = shard.schedule()
    (_, second) = shard.add(keyed(shard, "k"), keyed(shard, "k"))
    shard.dispatch(term)
    shard.now_ms += 100
    (third,) = shard.add(keyed(shard, "k"))
    shard.now_ms += 20  # in ingress
    shard.admit(term)
    (first,) = shard.lease()
    shard.now_ms += 10
    for job in (first, None):
        shard.store.complete([completed(job or shard.lease()[0])])
        shard.dispatch(term)
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=130)
    assert waits(shard, third) == Waits(limits_ms=10, line_ms=20)


def test_a_stay_in_ready_that_followed_no_limit_tells_none(shard: Shard) -> None:
    """What an earlier stay was held back is not told again."""
    term = shard.schedule()
    limit(shard, paused=True)
    (job_id,) = shard.add(shard.job(max_attempts=2))
    shard.now_ms += 100
    limit(shard, clear=True)
    shard.dispatch(term)
    (job,) = shard.lease()
    shard.store.fail([failed(job, retry_ms=0)])
    shard.store.promote_due()
    shard.dispatch(term)
    shard.now_ms += 400
    shard.lease()
    assert waits(shard, job_id) == Waits(limits_ms=100, line_ms=400)


def test_a_ceiling_that_holds_nobody_back_is_not_told_of(shard: Shard) -> None:
    limit(shard, max_in_flight=1)
    for _ in range(3):
        shard.add(shard.job())
        (job,) = shard.lease()
        shard.now_ms += 10
        shard.store.complete([completed(job)])
    assert blocks(shard) == {}
    assert not shard.client.hexists(shard.keys["conf"], "blocks")


def test_sums_go_with_the_work(shard: Shard) -> None:
    limit(shard, paused=True)
    shard.add(keyed(shard, "k"), keyed(shard, "k"), shard.job("bert"), shard.job("bert"))
    limit(shard, "bert", "main", max_in_flight=1)
    shard.now_ms += 10
    limit(shard, clear=True)
    running = shard.lease(9)
    shard.now_ms += 10
    assert {scope.partition("|@")[0] for scope in blocks(shard)} == {"t:acme", "l:bert|main", "q:acme|main"}
    shard.store.trim(**KEEP)
    assert len(blocks(shard)) == 3, "some of their jobs wait still"
    while running:
        shard.store.complete([completed(job) for job in running])
        running = shard.lease(9)
    shard.store.trim(**KEEP)
    assert blocks(shard) == {}
    assert not shard.client.hexists(shard.keys["conf"], "blocks")


def test_the_sum_of_a_sub_lane_goes_when_it_is_empty(shard: Shard) -> None:
    """Its tenant may never be: keys come and go with their arguments."""
    shard.add(keyed(shard, "k"), keyed(shard, "k"), *(shard.job() for _ in range(5)))
    (first, *_) = shard.lease(2)
    shard.now_ms += 10
    assert len(blocks(shard)) == 1
    shard.store.complete([completed(first)])
    shard.lease(9)
    assert blocks(shard) == {}


def test_a_retry_after_the_sums_have_gone_begins_at_nothing(shard: Shard) -> None:
    limit(shard, max_in_flight=1)
    (_, job_id) = shard.add(shard.job(), shard.job(max_attempts=3))
    (first,) = shard.lease()
    shard.now_ms += 1000
    shard.store.complete([completed(first)])
    (job,) = shard.lease()
    limit(shard, paused=True)
    shard.store.fail([failed(job, retry_ms=0)])
    shard.store.promote_due()
    shard.now_ms += 500
    limit(shard, max_in_flight=1)
    (job,) = shard.lease()  # it came into line at 1000
    shard.store.trim(**KEEP)
    shard.store.fail([failed(job, retry_ms=0)])
    shard.store.promote_due()
    limit(shard, paused=True)
    shard.now_ms += 300
    limit(shard, clear=True)
    shard.now_ms += 20
    shard.lease()
    assert waits(shard, job_id) == Waits(limits_ms=1800, line_ms=20)


def test_a_scope_that_still_holds_back_is_not_forgotten(shard: Shard) -> None:
    term = shard.schedule()
    limit(shard, paused=True)
    shard.store.trim(**KEEP)
    (job_id,) = shard.add(shard.job())  # it stands in ingress, which no walk knows
    shard.now_ms += 10
    limit(shard, clear=True)
    shard.dispatch(term)
    shard.lease()
    assert waits(shard, job_id) == Waits(limits_ms=10)


@pytest.mark.parametrize("flagged", [False, True])
def test_a_job_that_was_never_held_back_costs_no_command(shard: Shard, flagged: bool) -> None:
    """Not even in a pool where others were. `blocks` is asked for only of those that have limits, once a call."""
    if flagged:
        limit(shard, "other", paused=True)
        shard.add(shard.job("other"))
    shard.add(shard.job())
    seen = commands(shard, lambda: shard.store.complete([completed(job) for job in shard.lease()]))
    seen += commands(shard, lambda: shard.add(shard.job()))
    assert not [command for command in seen if f"{shard.keys.prefix}blocks" in command]


def test_a_call_asks_for_all_sums_at_once(shard: Shard) -> None:
    tenants = [f"t{number}" for number in range(9)]
    for tenant in tenants:
        limit(shard, tenant, max_in_flight=1)
    shard.add(*(shard.job(tenant) for tenant in tenants * 2))
    running = shard.lease(9)
    shard.now_ms += 10
    calls: list[Callable[[], object]] = [
        lambda: shard.store.complete([completed(job) for job in running]),
        lambda: shard.lease(9),
        lambda: shard.add(*(shard.job(tenant) for tenant in tenants)),
    ]
    for call in calls:
        touching = [command for command in commands(shard, call) if f"{shard.keys.prefix}blocks" in command]
        assert len(touching) <= 2, "one read, one write"


def test_a_lost_reply_tells_the_same(shard: Shard) -> None:
    limit(shard, max_in_flight=1)
    shard.add(shard.job(), shard.job(delay_ms=10))
    (first,) = shard.lease()
    shard.now_ms += 100
    shard.store.promote_due()
    shard.now_ms += 100
    shard.store.complete([completed(first)])
    (job,) = shard.lease()
    (again,) = shard.store.check_and_lease("w1", shard.seqs["w1"], want=1, begin=1, lease_ms=LEASE_MS).jobs
    assert again == job
    assert again.waits == Waits(schedule_ms=10, limits_ms=100, line_ms=90)
    assert summed(shard) == again.waits, "the repeat is counted once"


def test_a_clock_that_was_set_back_makes_nothing_negative(shard: Shard) -> None:
    limit(shard, max_in_flight=1)
    (_, job_id) = shard.add(shard.job(), shard.job())
    (first,) = shard.lease()
    shard.now_ms += 1000
    (late,) = shard.add(shard.job())
    shard.now_ms -= 60_000
    for job in (first, *shard.lease(9)):
        shard.store.complete([completed(job)])
    while leased := shard.lease(9):
        shard.store.complete([completed(job) for job in leased])
    assert waits(shard, job_id) == waits(shard, late) == summed(shard) == Waits()


def test_a_change_of_a_keys_limit_ends_the_wait_for_it(shard: Shard) -> None:
    (_, second) = shard.add(keyed(shard, "k"), keyed(shard, "k"))
    shard.lease(2)
    shard.now_ms += 10
    configure_key(shard, 200, "k", 2)
    shard.now_ms += 3
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=10, line_ms=3)


def commands(shard: Shard, act: Callable[[], object]) -> list[str]:
    with shard.client.monitor() as monitor:
        act()
        shard.client.echo("enough")
        seen: list[str] = []
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                return seen
            if not event["command"].startswith(("FCALL", "FUNCTION")):
                seen.append(event["command"])
    raise AssertionError
