"""A flood of fresh work while begun work goes on: the latter must hardly notice, in line and in the backlog."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
import redis

from queueapp.bench.statistics import percentile
from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits, Rate
from queueapp.store.keys import ShardKeys
from queueapp.store.records import KeyUse, LeasedJob, NewJob
from tests.lua.harness import START_MS, Shard, completed

SLOTS, RUN_MS, RUNS, STEPS, PAUSE_MS = 8, 20, 100, 5, 500
FRESH, BEGUN = (
    KeyUse(digest=digest(name), text=name, limit=1_000, pattern=digest(name)) for name in ("fresh", "begun")
)
"""Keys with rates of their own, so that begun work need not wait behind the reserved moments of fresh work."""


class Site:
    """Workers of `SLOTS` slots in the time of the test's clock, and `RUNS` runs of one tenant that take a step after
    each other: the next step of a run comes `PAUSE_MS` after its last one has ended.
    """

    def __init__(self, client: redis.Redis, keys: ShardKeys, *, parks: bool) -> None:
        self.shard, self.parks = Shard(client, keys), parks
        self.waits: list[int] = []
        self.events: list[tuple[int, int, str, Any]] = []
        self.number = 0
        self.busy = 0
        if parks:
            self.shard.store.configure(
                1,
                keys=[
                    KeyLimits(
                        pattern=use.pattern, text=use.text, max_in_flight=1_000, rate=Rate(rate=rate, period_ms=1_000)
                    )
                    for use, rate in ((FRESH, 20_000), (BEGUN, 400))
                ],
            )

    def at(self, moment: int, what: str, about: Any = None) -> None:
        self.number += 1
        heapq.heappush(self.events, (moment, self.number, what, about))

    def step(self, run: int, left: int) -> NewJob:
        options: dict[str, Any] = {"tier": "continue", "parks": self.parks, "keys": (BEGUN,) if self.parks else ()}
        return self.shard.job(payload=b'{"a":[%d,%d]}' % (run, left), cost=1, **options)

    def flood(self, number: int) -> None:
        keys = (FRESH,) if self.parks else ()
        jobs = [self.shard.job(cost=1, parks=self.parks, keys=keys) for _ in range(number)]
        outcomes = [answer.outcome for answer in self.shard.store.enqueue(jobs)]
        assert outcomes.count("parked") == (max(0, number - 1) if self.parks else 0)

    def lease(self) -> None:
        if self.busy == SLOTS:
            return
        if self.parks:
            self.shard.store.backlog_promote(self.number + 1)
        for job in self.shard.lease(SLOTS - self.busy):
            self.busy += 1
            if b"[1]" not in job.payload:
                self.waits.append(self.shard.now_ms - job.submitted_ms)
            self.at(self.shard.now_ms + RUN_MS, "end", job)

    def end(self, job: LeasedJob) -> None:
        self.busy -= 1
        self.shard.store.complete([completed(job, RUN_MS)])
        if b"[1]" not in job.payload:
            run, left = (int(part) for part in job.payload[6:-2].split(b","))
            if left:
                self.at(self.shard.now_ms + PAUSE_MS, "step", (run, left - 1))

    def run(self) -> int:
        """p95 of the waits of the steps, in ms."""
        for run in range(RUNS):
            self.at(START_MS + 100 + run * 5, "step", (run, STEPS))
        until = START_MS + 100 + RUNS * 5 + (STEPS + 1) * (PAUSE_MS + 10 * RUN_MS) * 3
        while self.events and self.shard.now_ms < until and len(self.waits) < RUNS * (STEPS + 1):
            self.shard.now_ms, _, what, about = heapq.heappop(self.events)
            if what == "end":
                self.end(about)
            elif what == "step":
                self.shard.store.enqueue([self.step(*about)])
            else:
                self.at(self.shard.now_ms + 10, "tick")
            self.lease()
        assert len(self.waits) == RUNS * (STEPS + 1)
        return round(percentile(sorted(self.waits), 95))


@pytest.mark.parametrize("parks", [False, True], ids=["in line", "parked"])
@pytest.mark.parametrize(
    "starts",
    [
        pytest.param(3_000),
        pytest.param(50_000, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_continuations_wait_less_than_twice_as_long_under_a_flood_of_starts(
    redis_client: redis.Redis, shard_keys: ShardKeys, starts: int, parks: bool
) -> None:
    found = []
    for number in (0, starts):
        for key in [*redis_client.scan_iter(f"{shard_keys.prefix}*", count=1_000)]:
            redis_client.unlink(key)
        site = Site(redis_client, shard_keys, parks=parks)
        site.at(START_MS, "tick")
        site.flood(number)
        found.append(site.run())
    quiet, flooded = found
    # Slots are not taken away: whoever comes waits at least for the end of a body that runs.
    assert flooded < 2 * max(quiet, RUN_MS), found
