"""C113 with real processes: parents and children in two pools, one of them limited, while workers and leaders die."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.test import override_settings

from queueapp import Tree, enqueue_flow
from queueapp.producer.results import DuctorResult
from queueapp.store import shards
from tests.families import gather
from tests.faults.killing import FAST
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, until

FLOWS = int(os.environ.get("DUCTOR_FAMILIES", "300"))
CHILDREN = 15
WORKERS, SCHEDULERS = 3, 2
KILL_EVERY_S = 4.0
POOLS: dict[str, Any] = {"limited": {}}
SETTINGS: dict[str, Any] = {**FAST, "MAX_CRASHES": 1_000, "POOLS": POOLS}
LIMITS = """
from queueapp.models import Pool, Tenant, TenantLimits
pool = Pool.objects.create(name="limited", dispatch="scheduled", max_in_flight=6)
tenant = Tenant.objects.create(key="default")
TenantLimits.objects.create(
    pool=pool, tenant=tenant, max_in_flight=4, rate=80, burst=20, dispatch_rate=100, dispatch_burst=20
)
"""


@pytest.fixture(autouse=True)
def _pools(settings: Any, namespace: str) -> Iterator[None]:
    with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": POOLS}):
        yield


def plant() -> DuctorResult:
    """Two thirds of the children are of the limited pool."""
    there = jobs.noop.using(queue_name="limited")
    children = [(there if number % 3 else jobs.noop).bind(number) for number in range(CHILDREN)]
    return enqueue_flow(Tree(gather.bind(), children=children))


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
def test_c113_all_parents_finish_whoever_dies(manage: Manage, worker: Manage) -> None:
    """C113: the last children never start and the parent never fires."""
    assert manage("shell", "-c", LIMITS, **SETTINGS).wait() == 0
    dice, born = random.Random(113), 0
    processes: dict[str, ManagedProcess] = {}

    def start(kind: str) -> None:
        nonlocal born
        born += 1
        name = f"{kind}{born}"
        if kind == "worker":
            processes[name] = worker("--pool", "default,limited", "--slots", "3", **SETTINGS)
        else:
            processes[name] = manage("scheduler", "--scheduler-id", name, **SETTINGS)

    def kill(name: str) -> None:
        process = processes.pop(name)
        process.signal(signal.SIGKILL)
        process.wait()

    default, limited = shards.reads("default"), shards.reads("limited")
    assert limited.configured().dispatch == "scheduled"
    parents = [plant() for _ in range(FLOWS)]
    for kind, number in (("worker", WORKERS), ("scheduler", SCHEDULERS)):
        for _ in range(number):
            start(kind)
    until(lambda: limited.overview().leader, timeout=90, what="a scheduler leads")

    began, killed, failovers = time.monotonic(), 0, 0
    while (done := sum(_is_over(each) for each in parents)) < FLOWS:
        assert time.monotonic() - began < 500, (done, killed, default.overview(), limited.overview())
        time.sleep(KILL_EVERY_S * (0.5 + dice.random()))
        kill(dice.choice([name for name in processes if name.startswith("worker")]))
        start("worker")
        killed += 1
        if failovers < 2 and time.monotonic() - began > 8 * (failovers + 1):
            leader = until(lambda: limited.overview().leader)
            kill(next(name for name in processes if leader.startswith(f"{name}.")))
            start("scheduler")
            failovers += 1
    print(f"{FLOWS} parents in {time.monotonic() - began:.0f} s; {killed} workers and {failovers} leaders died")

    assert failovers == 2
    for each in parents:
        assert (each.state, each.outcome) == ("ended", "completed")
        assert each.return_value["results"] == list(range(CHILDREN))
    for pool in ("default", "limited"):
        until(partial(_has_told_all, pool))
        assert shards.store(pool).verify() == []
    limited_done = limited.overview().stats["completed"]
    assert limited_done == FLOWS * CHILDREN * 2 // 3, "an outcome was recorded twice"
    assert default.overview().stats["completed"] == FLOWS * CHILDREN // 3 + FLOWS


def _has_told_all(pool: str) -> bool:
    return not shards.store(pool).outbox()


def _is_over(result: DuctorResult) -> bool:
    if result.state != "ended":
        result.refresh()
    return result.state in ("ended", "dead")
