"""`fsck --repair` beside the random machine, a step at a time: it finds nothing, changes nothing, loses nothing.

The machine's own ledger says after every step what each job must be; a repair of something that is whole would show
there, and so would one that came between two transitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from queueapp.store.recount import Recount
from tests.model.machine import Machine
from tests.model.strategies import often
from tests.model.test_store_machine import StoreMachine

STEPS_IN_CI, STEPS_LONG = 2_000, 20_000


class BesideFsck(StoreMachine):
    """Also a recount that never ends: each rule takes it some steps further."""

    whole = 0
    """Recounts that came to their end, of all machines."""
    recount: Recount | None = None
    going: Iterator[Any] | None = None

    @often(steps=st.integers(1, 12))
    def look_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.going is None:
                self.recount = Recount(self.store, repair=True, pause=lambda seconds: None)
                self.going = self.recount.run()
            if next(self.going, None) is None:
                self.going = None
                BesideFsck.whole += 1
            assert self.recount is not None
            # A token that its taker died with is armed again: that is a finding, and the only one.
            assert [one for one in self.recount.findings if one.kind != "wake"] == []


def run(client: redis.Redis, namespace: str, steps: int) -> None:
    machine: Any = lambda: BesideFsck(client, namespace)  # noqa: E731  (a function has another type here)
    Machine.steps = 0
    while Machine.steps < steps:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=20,
                stateful_step_count=60,
                report_multiple_bugs=False,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.timeout(300)
def test_fsck_beside_random_traffic_reports_nothing(redis_client: redis.Redis, namespace: str) -> None:
    run(redis_client, namespace, STEPS_IN_CI)
    assert BesideFsck.whole > 10


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fsck_beside_random_traffic_for_long(redis_client: redis.Redis, namespace: str) -> None:
    run(redis_client, namespace, STEPS_LONG)
