"""Rates at enqueue: exact to the millisecond, all or nothing over several scopes, refused untouched, or parked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits, Rate, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import KeyUse
from tests.lua.harness import START_MS, Shard
from tests.model.front import Gcra


def limit(shard: Shard, rate: Rate | None, *, tenant: str = "acme", lane: str = "", version: int = 1) -> None:
    shard.store.configure(version, scopes=[ScopeLimits(tenant=tenant, lane=lane, rate=rate)])


def words(shard: Shard, count: int = 1, **options: Any) -> list[str]:
    return [shard.store.enqueue([shard.job(**options)])[0].outcome for _ in range(count)]


def test_a_pool_whose_last_rate_went_asks_nobody_any_more(shard: Shard) -> None:
    """However often each is sent."""
    rate = Rate(rate=1, period_ms=1_000)
    scopes = [ScopeLimits(tenant="a", rate=rate), ScopeLimits(tenant="a", lane="x", rate=rate)]
    key = KeyLimits(pattern="p", text="p", rate=rate)
    for version, clear, asked in [(1, False, b"3"), (1, False, b"3"), (2, True, None), (2, True, None)]:
        shard.store.configure(
            version, scopes=[replace(scope, clear=clear) for scope in scopes], keys=[replace(key, clear=clear)]
        )
        assert shard.client.hget(shard.keys["conf"], "front") == asked
    shard.store.configure(3, scopes=scopes[:1])
    shard.store.configure(4, scopes=[ScopeLimits(tenant="a", weight=2)])
    assert not shard.client.hexists(shard.keys["conf"], "front")


def test_burst_then_one_an_interval(shard: Shard) -> None:
    limit(shard, Rate(rate=2, period_ms=1_000, burst=3))
    assert words(shard, 5) == ["enqueued"] * 3 + ["throttled"] * 2
    shard.now_ms += 499
    assert words(shard) == ["throttled"]
    shard.now_ms += 1
    assert words(shard, 2) == ["enqueued", "throttled"]


def test_a_refusal_says_when_to_come_back_and_leaves_no_trace(shard: Shard) -> None:
    limit(shard, Rate(rate=3, period_ms=1_000))
    shard.add(shard.job())
    before = shard.snapshot()
    [answer] = shard.store.enqueue([shard.job(idempotency="k")])
    assert (answer.outcome, answer.wait_ms) == ("throttled", 334)
    assert shard.snapshot() == before
    shard.now_ms += 333
    assert words(shard) == ["throttled"]
    shard.now_ms += 1
    assert words(shard) == ["enqueued"]


def test_thirds_of_a_millisecond_are_not_lost(shard: Shard) -> None:
    limit(shard, Rate(rate=3, period_ms=1_000))
    accepted = []
    for moment in range(2_001):
        shard.now_ms = START_MS + moment
        if words(shard) == ["enqueued"]:
            accepted.append(moment)
    # A rounded interval of 334 ms would lose a job in the long run; what came late earns nothing either.
    assert accepted == [0, 334, 668, 1002, 1336, 1670]


def test_c080_after_a_long_rest_nothing_is_owed_and_no_figure_is_negative(shard: Shard) -> None:
    """C080: Negative or nonsense reset/retry values."""
    limit(shard, Rate(rate=1, period_ms=60_000, burst=2))
    assert words(shard, 3) == ["enqueued", "enqueued", "throttled"]
    shard.now_ms += 30 * 86_400_000
    answers = shard.store.enqueue([shard.job() for _ in range(3)])
    assert [(answer.outcome, answer.wait_ms) for answer in answers] == [
        ("enqueued", 0),
        ("enqueued", 0),
        ("throttled", 60_000),
    ]


def test_a_clock_that_steps_back_owes_no_more_than_before(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2))
    assert words(shard, 3) == ["enqueued", "enqueued", "throttled"]
    shard.now_ms -= 3_600_000
    for waited_ms in (0, 400, 999):
        shard.now_ms += waited_ms
        [answer] = shard.store.enqueue([shard.job()])
        assert (answer.outcome, answer.wait_ms) == ("throttled", 1_000 - waited_ms), "and no more as time goes on"
        shard.now_ms -= waited_ms
    shard.now_ms += 1_000
    assert words(shard) == ["enqueued"]


def test_another_rate_carries_over_how_many_jobs_are_owed(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=86_400_000))
    shard.add(shard.job())
    limit(shard, Rate(rate=10, period_ms=1_000), version=2)
    [answer] = shard.store.enqueue([shard.job()])
    assert (answer.outcome, answer.wait_ms) == ("throttled", 100)
    shard.now_ms += 60
    [answer] = shard.store.enqueue([shard.job()])
    assert (answer.outcome, answer.wait_ms) == ("throttled", 40), "what was said stands"
    limit(shard, None, version=3)
    assert words(shard, 3) == ["enqueued"] * 3


def test_the_key_goes_a_minute_after_nothing_is_owed(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=60_000, burst=10))
    shard.add(shard.job(), shard.job())
    left: Any = shard.client.pttl(shard.keys["gcra:t:acme"])
    assert 170_000 < left <= 180_000


def test_tenant_lane_and_key_must_all_agree_and_a_refusal_takes_of_none(shard: Shard) -> None:
    use = KeyUse(digest=digest("customer:1"), text="customer:1", limit=9, pattern=digest("customer:{id}"))
    shard.store.configure(
        1,
        scopes=[
            ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=1_000, burst=3)),
            ScopeLimits(tenant="acme", lane="slow", rate=Rate(rate=1, period_ms=1_000, burst=2)),
        ],
        keys=[KeyLimits(pattern=use.pattern, text="customer:{id}", rate=Rate(rate=1, period_ms=1_000, burst=1))],
    )
    assert words(shard, 2, lane="slow", keys=(use,)) == ["enqueued", "throttled"]
    # The refusal took nothing of the lane or the tenant, and the key nothing of jobs without it.
    assert words(shard, 2, lane="slow") == ["enqueued", "throttled"]
    assert words(shard, 2) == ["enqueued", "throttled"]
    assert words(shard, 2, tenant="other", keys=(use,)) == ["throttled", "throttled"]
    assert words(shard, 1, tenant="other") == ["enqueued"]


def test_jobs_of_one_call_are_judged_one_after_the_other(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2))
    jobs = [shard.job() for _ in range(3)] + [shard.job("other")]
    assert [answer.outcome for answer in shard.store.enqueue(jobs)] == ["enqueued", "enqueued", "throttled", "enqueued"]


def test_a_repeat_pays_nothing(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2))
    job = shard.job()
    for _ in range(5):
        assert shard.store.enqueue([job])[0].outcome == "enqueued"
    assert words(shard, 2) == ["enqueued", "throttled"]
    # A job that stands for another by its idempotency key pays nothing, either.
    keyed = shard.job(idempotency="k")
    shard.now_ms += 1_000
    shard.add(keyed)
    assert words(shard, 1, idempotency="k") == ["exists"]


def test_an_idempotency_key_of_a_refused_job_stands_for_nothing(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000))
    jobs = [shard.job(), shard.job(idempotency="k"), shard.job(idempotency="k")]
    assert [answer.outcome for answer in shard.store.enqueue(jobs)] == ["enqueued", "throttled", "throttled"]
    shard.now_ms += 1_000
    assert words(shard, 1, idempotency="k") == ["enqueued"]


def test_two_processes_cannot_both_take_the_last_token(shard: Shard, redis_client: redis.Redis) -> None:
    limit(shard, Rate(rate=1, period_ms=3_600_000, burst=5))
    other = Shard(redis_client, shard.keys, now_ms=shard.now_ms)
    jobs = [shard.job() for _ in range(20)]
    outcomes = [each.store.enqueue([job])[0].outcome for job, each in zip(jobs, [shard, other] * 10, strict=True)]
    assert outcomes.count("enqueued") == 5


def test_c083_what_is_parked_waits_in_one_place_and_runs_in_the_end(shard: Shard) -> None:
    """C083: With 'bounce back' on, jobs over the rate are dropped: stored but in no list."""
    limit(shard, Rate(rate=2, period_ms=10_000, burst=2))
    answers = shard.store.enqueue([shard.job(parks=True) for _ in range(100)])
    assert [answer.outcome for answer in answers] == ["enqueued"] * 2 + ["parked"] * 98
    assert [answer.wait_ms for answer in answers[2:6]] == [5_000, 10_000, 15_000, 20_000]
    assert shard.reads.overview().waiting == 100
    ran = [job.id for job in shard.lease(100)]
    for _ in range(98):
        shard.now_ms += 5_000
        shard.store.backlog_promote(7)
        ran += [job.id for job in shard.lease(100, worker="w2")]
    assert ran == [answer.id for answer in answers]
    assert "backlog" not in shard.snapshot()


def test_parking_consumes_so_that_who_comes_later_waits_longer(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000))
    assert words(shard, 3, parks=True) == ["enqueued", "parked", "parked"]
    [answer] = shard.store.enqueue([shard.job()])
    assert (answer.outcome, answer.wait_ms) == ("throttled", 3_000)
    job = shard.job(parks=True)
    assert [shard.store.enqueue([job])[0].outcome for _ in range(2)] == ["parked", "parked"]
    shard.now_ms += 10  # a repeat, also in one call, says how long it is by now
    assert [answer.wait_ms for answer in shard.store.enqueue([job, job])] == [2_990, 2_990]
    shard.now_ms -= 10
    [answer] = shard.store.enqueue([shard.job()])
    assert answer.wait_ms == 4_000
    pair = shard.store.enqueue([two := shard.job(parks=True), two])
    assert [(answer.outcome, answer.wait_ms) for answer in pair] == [("parked", 4_000), ("parked", 4_000)]


def test_a_job_for_later_is_parked_until_both_moments(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000))
    shard.add(shard.job())
    [answer] = shard.store.enqueue([shard.job(parks=True, delay_ms=5_000)])
    assert (answer.outcome, answer.wait_ms) == ("parked", 5_000)


@pytest.fixture
def own_shard(redis_client: redis.Redis, shard_keys: ShardKeys) -> Shard:
    return Shard(redis_client, shard_keys)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rate=st.integers(1, 1_000),
    period_ms=st.integers(1, 2_000),
    burst=st.integers(1, 8),
    steps=st.lists(st.tuples(st.integers(0, 700), st.booleans()), min_size=1, max_size=40),
)
def test_every_answer_is_that_of_the_exact_model(
    own_shard: Shard, rate: int, period_ms: int, burst: int, steps: Sequence[tuple[int, bool]]
) -> None:
    shard = own_shard
    for key in [*shard.client.scan_iter(f"{shard.keys.prefix}*")]:
        shard.client.delete(key)
    shard.now_ms = START_MS
    rule = Rate(rate=rate, period_ms=period_ms, burst=burst)
    limit(shard, rule)
    model, accepted = Gcra(rule), []
    for step_ms, parks in steps:
        shard.now_ms += step_ms
        moment = model.moment(shard.now_ms)
        conforms = model.conforms(shard.now_ms)
        assert conforms == (moment <= shard.now_ms)
        [answer] = shard.store.enqueue([shard.job(parks=parks)])
        want = "enqueued" if conforms else "parked" if parks else "throttled"
        assert (answer.outcome, answer.wait_ms) == (want, 0 if conforms else moment - shard.now_ms)
        if conforms or parks:
            model.take(shard.now_ms)
            accepted.append(max(moment, shard.now_ms))
    # Over any window: no more than the burst, and what the rate gives in that time.
    for first, begin in enumerate(accepted):
        for last in range(first, len(accepted)):
            assert (last - first + 1 - burst) * period_ms <= (accepted[last] - begin + 1) * rate
