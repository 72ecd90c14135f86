"""Scheduler processes fire a schedule that is made while they run; one is killed, nothing is lost or doubled."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from queueapp.store.ids import made_ms
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.integration.conftest import Manage, until

MAKE = """
from queueapp.models import Schedule
row = Schedule(name="each second", task="tests.integration.jobs.noop", args=[1], every_seconds=1)
row.full_clean()
row.save()
"""


def kept(tmp_path: Path) -> int:
    with closing(sqlite3.connect(tmp_path / "db.sqlite3", timeout=20)) as database:
        [(number,)] = database.execute("SELECT count(*) FROM queueapp_outboxentry")
    return int(number)


@pytest.mark.faults
def test_two_schedulers_of_which_one_is_killed_fire_each_second_once(
    manage: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    first, second = (manage("scheduler", "--scheduler-id", name) for name in ("first", "second"))
    for scheduler in (first, second):
        scheduler.wait_for("Scheduler started")

    made = manage("shell", "-c", MAKE)
    assert made.wait(60) == 0, made.output
    until(lambda: reads.overview().waiting >= 3)
    first.signal(signal.SIGKILL)
    seen = reads.overview().waiting
    until(lambda: reads.overview().waiting >= seen + 4)
    off = manage("ductor", "schedules", "off", "each second")
    assert off.wait(60) == 0, off.output
    time.sleep(1.5)  # a pass that had begun
    until(lambda: kept(tmp_path) == 0)
    assert second.stop() == 0

    jobs = store.check_and_lease("reader", 1, want=200, begin=200, lease_ms=60_000).jobs
    moments = sorted(made_ms(job.id) for job in jobs)
    assert moments == list(range(moments[0], moments[-1] + 1, 1_000)), "each second, and each once"
