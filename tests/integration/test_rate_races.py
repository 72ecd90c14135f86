"""Rates under real races: two processes that take at once, each as fast as it can."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from queueapp.store.configuration import KeyLimits, Rate, ScopeLimits
from queueapp.store.store import Store
from tests.integration.conftest import ROOT
from tests.integration.taking import KEY, job

CALLS = 300
NEVER = Rate(rate=1, period_ms=86_400_000, burst=7)
"""What is taken of this burst does not come back while the test runs."""
QUICK = Rate(rate=200, period_ms=1_000, burst=3)


def race(store: Store, redis_url: str, verb: str) -> list[int]:
    """Both begin when both are there; what they took together."""
    arguments = [redis_url, store.keys.namespace, store.keys.code, verb]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.taking", *arguments, name, str(CALLS)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("w1", "w2")
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return sorted(moment for taken in answers for moment in taken)


def limit(store: Store, scope: str, *, rate: Rate | None = None, dispatch_rate: Rate | None = None) -> None:
    if scope == "key":
        limits = KeyLimits(pattern=KEY.pattern, text="one", max_in_flight=1_000, rate=rate, dispatch_rate=dispatch_rate)
        store.configure(1, keys=[limits])
    else:
        lane = "main" if scope == "lane" else ""
        store.configure(1, scopes=[ScopeLimits(tenant="acme", lane=lane, rate=rate, dispatch_rate=dispatch_rate)])


@pytest.mark.parametrize("scope", ["tenant", "lane", "key"])
def test_two_processes_cannot_both_take_the_last_token_at_the_door(store: Store, redis_url: str, scope: str) -> None:
    limit(store, scope, rate=NEVER)
    assert len(race(store, redis_url, "enqueue")) == NEVER.burst
    assert store.verify() == []


@pytest.mark.parametrize("scope", ["tenant", "lane", "key"])
def test_two_processes_cannot_both_take_the_last_token_at_the_pick(store: Store, redis_url: str, scope: str) -> None:
    limit(store, scope, dispatch_rate=NEVER)
    store.enqueue([job() for _ in range(100)])
    assert len(race(store, redis_url, "lease")) == NEVER.burst
    assert store.verify() == []


@pytest.mark.parametrize("scope", ["tenant", "key"])
def test_two_processes_together_stay_within_a_rate_while_tokens_come(store: Store, redis_url: str, scope: str) -> None:
    limit(store, scope, dispatch_rate=QUICK)
    for _ in range(4):
        store.enqueue([job() for _ in range(200)])
    moments = race(store, redis_url, "lease")
    assert len(moments) >= QUICK.burst
    for first, begin in enumerate(moments):
        for last in range(first, len(moments)):
            excess = last - first + 1 - QUICK.burst
            assert excess * QUICK.period_ms <= (moments[last] - begin + 1) * QUICK.rate
    assert store.verify() == []
