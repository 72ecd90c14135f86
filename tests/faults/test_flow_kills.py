"""The kill matrix of runs: a worker or a scheduler dies at each point of a run, others go on, and the run ends well.

Well: with the right output, no step's outcome recorded twice, and no body begun once its completion was recorded. Cases
C112, C118 and C121.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.test.utils import override_settings

from flows import RunHandle, models
from flows.sweep import LATE_MS
from queueapp.moments import now_ms
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.faults import flow_jobs
from tests.faults.dying import POINTS, SWEEP
from tests.faults.killing import FAST
from tests.integration.conftest import Manage, ManagedProcess, until

SETTINGS: dict[str, Any] = {**FAST, "MAX_CRASHES": 200}
Start = Callable[..., ManagedProcess]
PLAIN = "after the commit, before the relay"


class Rig:
    """Processes of one installation, and this one, which starts runs in their database and looks at them."""

    def __init__(self, manage: Manage, database: Path, notes: Path) -> None:
        self._manage = manage
        self.notes = notes
        self._env = {
            "DATABASE_URL": f"sqlite:///{database}",
            "TEST_APPS": "tests.faults.dying.DyingConfig",
            "FLOW_NOTES": str(notes),
        }

    def worker(self, dies_at: str = "", *, slots: int = 3) -> ManagedProcess:
        """It may die at this point."""
        options = ("--no-reload", "--slots", str(slots))
        return self._manage("worker", *options, env={**self._env, "FLOW_DIES_AT": dies_at}, **SETTINGS)

    def scheduler(self, dies_at: str = "") -> ManagedProcess:
        return self._manage("scheduler", env={**self._env, "FLOW_DIES_AT": dies_at}, **SETTINGS)

    def lines(self) -> list[tuple[str, str]]:
        """(what, key) of everything that bodies have noted, in order."""
        path = self.notes / "notes"
        noted = path.read_text().splitlines() if path.exists() else []
        return [(what, key) for what, key in (line.split(" ", 1) for line in noted)]

    def come_out(self, run: RunHandle, timeout: float = 60) -> models.Run:
        """The run as it ended. Now and then its watchdog's five minutes are over, unheard."""
        aged = time.monotonic() + 12

        def ended() -> bool:
            nonlocal aged
            if time.monotonic() > aged:
                aged = time.monotonic() + 12
                models.Run.objects.filter(state="running").update(watch_ms=now_ms() - LATE_MS - 1)
            return bool(run.refresh().row.has_ended)

        until(ended, timeout=timeout, what=f"run {run.id} ends: {list(run.row.steps.values_list('step', 'state'))}")
        return run.row

    def look_at(self, run: models.Run) -> None:
        """One outcome, once; nothing left over."""
        rows = list(models.StepRun.objects.filter(run_id=run.id))
        places = {row.place for row in rows if row.state == "completed"}
        assert places == set(range(run.ends)), "each end was counted once"
        recorded: set[str] = set()
        for what, key in self.lines():
            if what == "recorded":
                recorded.add(key)
            elif what == "begun":
                assert key not in recorded, f"{key} began again, and had completed"
        until(lambda: not models.FlowCommand.objects.exists(), timeout=30, what="every command is carried out")
        counts = Counter(models.ItemRun.objects.values_list("step_run_id", "index"))
        assert set(counts.values()) <= {1}


@pytest.fixture
def rig(
    manage: Manage, second_database: str, tmp_path: Path, _migrated: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> Iterator[Rig]:
    notes = tmp_path / "notes-of-flows"
    notes.mkdir()
    monkeypatch.setenv("FLOW_NOTES", str(notes))
    database = Path(connections[second_database].settings_dict["NAME"])
    shutil.copy(_migrated, database)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "DATABASE": second_database}):
        yield Rig(manage, database, notes)


def dies_and_comes_out(rig: Rig, point: str) -> None:
    doomed = rig.worker(point)
    rig.scheduler()
    doomed.wait_for(" started", 60)
    run = flow_jobs.branches.start(10)
    assert doomed.wait(40) == -signal.SIGKILL, point
    rig.worker().wait_for(" started", 60)
    ended = rig.come_out(run)
    assert (ended.state, ended.output) == ("completed", flow_jobs.EXPECTED + 10)
    rig.look_at(ended)


def test_a_worker_dies_between_what_it_recorded_and_what_follows(rig: Rig) -> None:
    dies_and_comes_out(rig, PLAIN)


@pytest.mark.long
@pytest.mark.parametrize("point", [point for point in POINTS if point != PLAIN])
def test_a_worker_dies(rig: Rig, point: str) -> None:
    dies_and_comes_out(rig, point)


@pytest.mark.long
@pytest.mark.parametrize("point", SWEEP)
def test_a_scheduler_dies(rig: Rig, point: str) -> None:
    """And with it the worker, in the middle of the run: the sweep has something to find."""
    doomed = rig.worker(PLAIN)
    doomed.wait_for(" started", 60)
    run = flow_jobs.branches.start(1)
    assert doomed.wait(40) == -signal.SIGKILL
    (rig.notes / "died").unlink()
    scheduler = rig.scheduler(point)
    assert scheduler.wait(40) == -signal.SIGKILL
    rig.scheduler()
    rig.worker()
    ended = rig.come_out(run)
    assert ended.state == "completed"
    rig.look_at(ended)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_c118_whoever_dies_whenever_completed_steps_are_not_run_again(rig: Rig) -> None:
    """Fifty deaths of workers and schedulers at random moments, while six runs of ten steps are under way."""
    seed = 118
    chance = random.Random(seed)
    workers = [rig.worker(slots=2) for _ in range(2)]
    schedulers = [rig.scheduler()]
    runs = [flow_jobs.branches.start(number) for number in range(6)]
    for death in range(50):
        time.sleep(chance.uniform(0.05, 0.6))
        group = schedulers if chance.random() < 0.2 else workers
        place = chance.randrange(len(group))
        group[place].signal(signal.SIGKILL)
        group[place].wait()
        group[place] = rig.scheduler() if group is schedulers else rig.worker(slots=2)
        if death % 8 == 7:
            runs.append(flow_jobs.branches.start(death))
    for run in runs:
        ended = rig.come_out(run, timeout=120)
        assert ended.state == "completed", (seed, ended.state)
        rig.look_at(ended)
    assert {key for what, key in rig.lines() if what == "ran" and key.startswith(runs[0].id)} >= {
        f"{runs[0].id}/{step}" for step in flow_jobs.KEYS
    }


def test_c121_after_a_cancel_in_the_middle_of_a_fan_out_nothing_starts(rig: Rig, reads: Reads) -> None:
    rig.worker(slots=4)
    rig.scheduler()
    run = flow_jobs.crowd.start(200)

    def begun() -> list[str]:
        return [key for what, key in rig.lines() if what == "begun" and "/parts/" in key]

    until(lambda: len(begun()) == 4, what="all slots have an item")
    assert run.cancel("enough")
    (rig.notes / "go").touch()
    until(lambda: reads.overview().ended >= 5 and not shards.store("default").client.zcard(store_active()), timeout=40)
    assert len(begun()) == 4, "none began after the answer"
    assert run.refresh().state == "cancelled"
    assert models.StepRun.objects.get(run_id=run.id, step="parts").state == "cancelled"
    assert not models.StepRun.objects.filter(run_id=run.id, step="last").exists()


def store_active() -> str:
    return str(shards.keys("default")["active"])
