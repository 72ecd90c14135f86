"""The numbers of the worked example in `docs/costs.md` are those of the store, and its bounds those of the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from queueapp.inspection.jobs import find_job
from queueapp.producer.discovery import registry
from queueapp.producer.options import COST_MAX
from queueapp.store import scripts
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Failed, LeasedJob, Returned
from queueapp.store.store import Store
from queueapp.testing import drain
from tests.lua.harness import LEASE_MS, Shard, completed

PAGE = (Path(__file__).resolve().parents[2] / "docs/costs.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.*) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


@pytest.fixture
def shard(redis_client: redis.Redis, shard_keys: ShardKeys) -> Iterator[Shard]:
    """Both tenants of the example, with work that lasts."""
    fresh = Shard(redis_client, shard_keys)
    fresh.store.configure(
        1, pool=PoolConf(default_cost=50), scopes=[ScopeLimits(tenant="acme"), ScopeLimits(tenant="globex", weight=2)]
    )
    declared = {2: 300.0}
    fresh.add(
        *(fresh.job("acme") for _ in range(4)),
        *(fresh.job("globex", cost=declared.get(number, 0)) for number in range(1, 9)),
    )
    yield fresh
    assert fresh.store.verify() == []


class Example:
    """The steps of the table; each acts on the job that was leased last."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.job: LeasedJob | None = None

    def lease(self, tenant: str) -> None:
        (self.job,) = self.shard.lease(worker=f"w{self.shard.now_ms}")
        assert self.job.tenant == tenant

    def end(self, run_ms: int, estimate: float) -> None:
        self.shard.now_ms += run_ms
        self.shard.store.complete([completed(self._held, run_ms=run_ms)])
        self.check(estimate)

    def fail(self, run_ms: int, cost: float) -> None:
        self.shard.now_ms += run_ms
        job = self._held
        self.shard.store.fail([Failed(id=job.id, attempts=job.attempts, run_ms=run_ms, error=b"{}", cost=cost)])
        self.check(445)

    def give_back(self) -> None:
        self.shard.store.partition_requeue([Returned(id=self._held.id, attempts=self._held.attempts)])

    def heartbeat(self, elapsed_ms: int) -> None:
        self.shard.now_ms += elapsed_ms
        self.shard.store.extend_lease([(self._held.id, self._held.attempts)], LEASE_MS)

    def lose(self) -> None:
        self.shard.now_ms += LEASE_MS
        assert self.shard.store.partition_recover(10).pending == 1

    def check(self, estimate: float) -> None:
        stored = self.shard.client.hget(self.shard.keys["est"], "1")
        assert isinstance(stored, bytes)
        assert int(stored.partition(b"|")[0]) / 16 == estimate

    @property
    def charged(self) -> float:
        record = self.shard.reads.job(self._held.id)
        assert record is not None
        return record.charged

    @property
    def turns(self) -> tuple[float, float]:
        walk = dict(self.shard.snapshot()["walk"])
        return walk[b"acme"], walk[b"globex"]

    @property
    def _held(self) -> LeasedJob:
        assert self.job is not None
        return self.job


def test_the_worked_example(shard: Shard) -> None:
    one = Example(shard)
    steps: list[Callable[[], Any]] = [
        lambda: one.lease("acme"),
        lambda: one.end(400, estimate=400),
        lambda: one.lease("globex"),
        lambda: one.end(240, estimate=380),
        lambda: one.lease("globex"),
        lambda: one.end(900, estimate=445),
        lambda: one.lease("globex"),
        lambda: one.fail(60, cost=100),
        lambda: one.lease("globex"),
        one.give_back,
        lambda: one.lease("globex"),
        lambda: one.heartbeat(1000),
        one.lose,
        lambda: one.lease("acme"),
    ]
    assert len(steps) == len(ROWS)
    for step, (number, what, charged, acme, globex) in zip(steps, ROWS, strict=True):
        step()
        assert (one.charged, *one.turns) == (float(charged), float(acme), float(globex)), f"{number}: {what}"


def test_the_numbers_of_the_example_are_said_in_words_too() -> None:
    told = " ".join(what for _, what, *_ in ROWS)
    for words in (
        "400 ms",
        "240 ms",
        "becomes 380",
        "`cost=300`",
        "900 ms",
        "becomes 445",
        "`set_cost(100)`",
        "1000 ms",
    ):
        assert words in told


def test_the_bounds_are_those_of_the_code() -> None:
    text = scripts.source("include/estimates.lua")
    known, most = re.findall(r"local RUNS_KNOWN, ESTIMATES_MAX = (\d+), (\d+)", text)[0]
    assert (known, f"at most {int(most):,} averages" in PAGE) == ("8", True)
    assert "eighth run" in PAGE
    assert f"from 1 to {COST_MAX}" in PAGE
    assert f"(`{PoolConf().default_cost:g}`)" in PAGE or f"({PoolConf().default_cost:g})" in PAGE


def test_the_example_of_a_task_is_charged_what_its_body_says(store: Store) -> None:
    """In a pool whose unit is tokens, before the default's one."""
    block = next(block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M) if "summarise" in block)
    module = ModuleType("shop.summaries")
    module.__dict__["ask_model"] = lambda document: {"tokens": 1234, "text": document[:3]}
    try:
        exec(compile(block, "shop/tasks.py", "exec"), module.__dict__)
        store.configure(1, pool=PoolConf(cost_unit="tokens"))
        result = module.summarise.enqueue("all of it")
        drain()
    finally:
        registry.pop("shop.summaries.summarise", None)
    result.refresh()
    view = find_job(result.id)
    assert view is not None
    assert (result.return_value, view.charged) == ("all", 1234)
