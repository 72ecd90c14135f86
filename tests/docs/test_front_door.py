"""`docs/front-door.md`: its table of rates runs call by call, its examples are tasks, its words are the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import redis

from queueapp.producer.once import OnThrottle
from queueapp.producer.task import DuctorTask
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Entry, SingletonMode
from tests.lua.harness import Shard

PAGE = (Path(__file__).resolve().parents[2] / "docs/front-door.md").read_text()
RATES = re.findall(r"^\| (\d+) \| (\d+) s \| (\d+) \| `([-+ ]+)` \|$", PAGE, re.MULTILINE)
CALL_EVERY_MS = 250


@pytest.mark.parametrize(("rate", "period", "burst", "calls"), RATES)
def test_c081_the_table_of_rates_is_what_happens(
    redis_client: redis.Redis, shard_keys: ShardKeys, rate: str, period: str, burst: str, calls: str
) -> None:
    """C081: Users misread burst against rate."""
    shard = Shard(redis_client, shard_keys)
    rule = Rate(rate=int(rate), period_ms=int(period) * 1_000, burst=int(burst))
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=rule)])
    happened = []
    for _ in calls.split():
        [answer] = shard.store.enqueue([shard.job()])
        happened.append({"enqueued": "+", "throttled": "-"}[answer.outcome])
        shard.now_ms += CALL_EVERY_MS
    assert " ".join(happened) == calls


def test_there_is_a_table() -> None:
    assert len(RATES) >= 8
    assert {len(calls.split()) for *_, calls in RATES} == {12}


def test_each_outcome_and_each_mode_is_told() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| (?:the job|raises)", PAGE, re.MULTILINE)) == set(get_args(Entry))
    assert set(re.findall(r'^\| `"(\w+)"` \|', PAGE, re.MULTILINE)) == set(get_args(SingletonMode))
    assert f'on_throttle="{get_args(OnThrottle)[1]}"' in PAGE


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M))
def test_the_examples_are_tasks(block: str) -> None:
    namespace: dict[str, Any] = {"__name__": "tests.docs.test_front_door"}
    exec(compile(block, "docs/front-door.md", "exec"), namespace)
    assert any(isinstance(value, DuctorTask) for value in namespace.values())
