"""The kill matrix, script by script: who calls it dies before the call, or after it and before the reply is read.

The shard is then exactly as it was, or exactly as after the call: never between. Generic over the scripts, so that a
new one cannot be forgotten. What real processes make of it is `test_killed_processes`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from queueapp.store import scripts
from queueapp.store.keys import ShardKeys
from tests.faults.wire import When, Wire
from tests.lua.harness import Shard

UNCHANGING = {name for name in scripts.names() if "no-writes" in scripts.source(f"{name}.lua").splitlines()[0]}
"""Scripts that only read."""
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def victim(name: str, wire: Wire, redis_url: str, keys: ShardKeys) -> Iterator[subprocess.Popen[str]]:
    """It has prepared its shard and waits for a line."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.victim", name, wire.url, redis_url, keys.namespace, keys.code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", scripts.names())
def test_who_dies_at_a_script_leaves_all_of_it_or_nothing(
    redis_client: redis.Redis, shard_keys: ShardKeys, redis_url: str, wire: Wire, name: str, when: When
) -> None:
    shard = Shard(redis_client, shard_keys)
    with victim(name, wire, redis_url, shard_keys) as process:
        before = shard.snapshot()
        strike = wire.strike(scripts.script(name).function, when, process.kill)
        process.communicate("go\n", timeout=30)
        assert strike.done.is_set(), f"{name} was not called"
    after = shard.snapshot()
    assert (after == before) is (when == "before" or name in UNCHANGING)
    assert shard.store.verify() == []
