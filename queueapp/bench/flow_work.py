"""The flows that benchmarks run; the bodies of their steps say when they ran. All clocks are this machine's."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

from flows import Flow, flow, map_step, step
from queueapp import task

CHAIN, CROWD, FAN = "bench-chain", "bench-crowd", "bench-fan"
"""Pools: of runs one after another, of many at once, of one with many items."""
LEAST_MS, MOST_MS = 5, 10


@task(max_attempts=1)
def stamped(before: object, ms: float) -> dict[str, Any]:
    """Sleeps, and tells when it began and ended, in which thread. `before` is what the step before returned."""
    began_s = time.time()
    time.sleep(ms / 1000)
    return {"thread": threading.get_ident(), "began_s": began_s, "ended_s": time.time()}


@task(queue_name=CROWD)
def fresh(ms: float) -> None:
    """A job of no run."""
    time.sleep(ms / 1000)


@task(queue_name=FAN, max_attempts=1)
def listed(count: int) -> list[int]:
    """So many items."""
    return [number % 10 for number in range(count)]


@task(queue_name=FAN)
def item(number: int) -> int:
    """Nothing: what is left is the cost of an item."""
    return number


@cache
def chain(pool: str, steps: int) -> Flow[Any]:
    """So many steps, each of which takes what the one before it returned."""

    @flow(name=f"{pool}-{steps}", pool=pool)
    def declared(ms: float) -> object:
        value: object = None
        for number in range(steps):
            value = step(stamped, value, ms, name=f"step-{number:03}")
        return value

    return declared


@flow(name=FAN, pool=FAN)
def fan(count: int) -> object:
    """One map over a list that its first step makes."""
    return map_step(item, step(listed, count)).counts
