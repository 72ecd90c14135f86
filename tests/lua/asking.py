"""Words for the tests of `explain`."""

from __future__ import annotations

from typing import Any

from queueapp.store.wait_facts import WaitFacts
from tests.lua.harness import Shard

LIVE_MS = 60_000


def ask(shard: Shard, job_id: str, **bounds: Any) -> WaitFacts:
    """The facts; asking changes nothing."""
    before = shard.snapshot()
    facts = shard.store.explain(job_id, **{"live_ms": LIVE_MS, "most": 8, "walked": 100, "looks": 2_000, **bounds})
    assert shard.snapshot() == before
    return facts
