"""`bench record`: a trace of what goes through a live pool, as it can be replayed; what is left out, and told so."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core.management import CommandError, call_command

from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.experiments import record
from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.recording import Recording
from queueapp.bench.workloads import Workload, traces
from queueapp.errors import StoreUnavailable
from queueapp.moments import now_ms
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, LeasedJob
from queueapp.store.store import Store
from queueapp.store.views import ErrorRecord, JobRecord, Page
from queueapp.store.waits import Waits
from tests.unit.inspection.conftest import Scene

BEGIN_MS = 1_000_000
HOUR_MS = 3_600_000


# -- which jobs, and what of them ----------------------------------------------------------------------------------


def ended(number: int = 1, **given: Any) -> JobRecord:
    """A job that came 100 ms after the beginning, ran from 150 to 190, and completed."""
    usual: dict[str, Any] = {
        "id": f"{number:022}",
        "state": State.ENDED,
        "outcome": Outcome.COMPLETED,
        "task": "shop.tasks.pay",
        "tenant": "acme",
        "lane": "main",
        "submitted_ms": BEGIN_MS + 100,
        "leased_ms": BEGIN_MS + 150,
        "ended_ms": BEGIN_MS + 190,
        "waits": Waits(line_ms=50),
    }
    return JobRecord(**{**usual, **given})


def recorded(*records: JobRecord) -> Recording:
    recording = Recording(BEGIN_MS)
    for one in records:
        recording.ended(one)
    return recording


def test_a_job_is_told_by_its_arrival_and_its_run() -> None:
    [job] = recorded(ended(lane="mail")).jobs()
    assert (job.number, job.at_us, job.tenant, job.lane, job.service_us) == (1, 100_000, "acme", "mail", 40_000)


def test_a_job_that_waits_for_its_moment_arrives_then() -> None:
    [job] = recorded(ended(waits=Waits(schedule_ms=30, line_ms=20))).jobs()
    assert job.at_us == 130_000


def test_jobs_come_in_the_order_of_their_arrival_whichever_ended_first() -> None:
    later, sooner = ended(1, submitted_ms=BEGIN_MS + 120), ended(2)
    assert [job.at_us for job in recorded(later, sooner).jobs()] == [100_000, 120_000]


@pytest.mark.parametrize(
    ("learnt", "charged", "service_us", "cost"),
    [
        (True, 12.0, 12_000, 0.0),  # leased ahead for 28 ms: the worker's own measure stands
        (True, 500.0, 40_000, 0.0),  # a body that set a cost: no run is longer than its lease
        (False, 7.0, 40_000, 7.0),  # declared
        (False, 0.0, 40_000, 0.0),
    ],
)
def test_what_was_learnt_is_a_run_time_and_what_was_declared_is_a_cost(
    learnt: bool, charged: float, service_us: int, cost: float
) -> None:
    [job] = recorded(ended(learnt=learnt, charged=charged)).jobs()
    assert (job.service_us, job.cost) == (service_us, cost)


def test_a_run_too_short_for_the_clock_took_some_time() -> None:
    [job] = recorded(ended(ended_ms=BEGIN_MS + 150)).jobs()
    assert job.service_us == 1


def test_priority_and_deadline_are_those_that_were_seen_while_it_ran() -> None:
    recording = Recording(BEGIN_MS)
    running = ended(state=State.ACTIVE, outcome=None, priority=7, deadline_ms=BEGIN_MS + 900)
    recording.saw(running)
    assert recording.knows(running.id)
    recording.ended(ended())
    [job] = recording.jobs()
    assert (job.priority, job.deadline_us, recording.unseen()) == (7, 900_000, 0)
    assert not recording.knows(running.id)


def test_what_ended_before_it_was_seen_is_counted_as_such() -> None:
    recording = Recording(BEGIN_MS)
    recording.saw(ended())  # it had ended when its row was read, which tells nothing any more
    recording.ended(ended())
    assert (recording.unseen(), [job.priority for job in recording.jobs()]) == (1, [0])


def test_a_deadline_that_was_over_before_the_recording_began_is_one_all_the_same() -> None:
    recording = Recording(BEGIN_MS)
    recording.saw(ended(state=State.ACTIVE, deadline_ms=BEGIN_MS - 5))
    recording.ended(ended())
    assert recording.jobs()[0].deadline_us == 1


def test_what_was_enqueued_before_or_after_is_no_part_of_it() -> None:
    recording = recorded(ended(1, submitted_ms=BEGIN_MS - 1))
    recording.end_ms = BEGIN_MS + 100
    recording.ended(ended(2))
    recording.ended(ended(3, submitted_ms=BEGIN_MS + 101))
    assert (recording.done, len(recording.jobs())) == (1, 1)


RAISED = ErrorRecord(kind="error", attempt=1, worker="w", at_ms=BEGIN_MS + 190, detail={}, started_ms=BEGIN_MS + 150)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"outcome": Outcome.CANCELLED}, "cancelled"),
        ({"outcome": Outcome.EXPIRED, "leased_ms": 0, "waits": None}, "expired"),
        ({"outcome": Outcome.MOVED, "leased_ms": 0, "waits": None}, "moved"),
        ({"state": State.DEAD, "outcome": None, "reason": "worker_lost"}, "dead"),
        ({"tenant": "_ductor"}, "internal"),
    ],
)
def test_what_did_not_run_to_an_end_of_its_own_is_left_out_by_the_reason(given: dict[str, Any], reason: str) -> None:
    recording = recorded(ended(**given))
    assert (recording.jobs(), recording.left_out(), recording.done) == ([], {reason: 1}, 1)


def test_what_raised_had_its_slot_too_and_is_seen_as_long_as_it_is_dead() -> None:
    recording = recorded(ended(state=State.DEAD, outcome=None, priority=3, errors=(RAISED,)))
    assert [(job.service_us, job.priority) for job in recording.jobs()] == [(40_000, 3)]
    assert recording.unseen() == 0


def test_a_dead_letter_that_ran_again_is_one_job() -> None:
    dead = ended(state=State.DEAD, outcome=None, reason="worker_lost")
    recording = recorded(dead, ended(leased_ms=BEGIN_MS + 300, ended_ms=BEGIN_MS + 310))
    assert (len(recording.jobs()), recording.left_out(), recording.done) == (1, {}, 1)


def test_names_become_numbers_in_the_order_of_arrival() -> None:
    recording = recorded(
        ended(1, tenant="globex", submitted_ms=BEGIN_MS + 140),
        ended(2, tenant="acme", lane="acme-mail"),
        ended(3, tenant="globex", lane="acme-mail", submitted_ms=BEGIN_MS + 145),
    )
    assert [(job.tenant, job.lane) for job in recording.jobs(anonymous=True)] == [
        ("t1", "l1"),
        ("t2", "main"),
        ("t2", "l1"),
    ]
    assert [job.tenant for job in recording.jobs()] == ["acme", "globex", "globex"]


@dataclass
class Index:
    """What a watch asks of a shard: the server's clock, what runs, and what has ended at which millisecond."""

    now: int = BEGIN_MS
    active: list[JobRecord] = field(default_factory=list)
    ended: list[JobRecord] = field(default_factory=list)

    def overview(self) -> SimpleNamespace:
        return SimpleNamespace(now_ms=self.now, stats={})

    def now_ms(self) -> int:
        return self.now

    def browse(self, index: str, *, before_ms: int, after: tuple[str, str] | None, count: int) -> Page:
        there = {"active": self.active, "ended": self.ended}.get(index, [])
        begin = (int(after[0]), after[1]) if after else (0, "")
        ids = [one.id for one in there if begin < (one.ended_ms, one.id) and not 0 < before_ms <= one.ended_ms]
        return Page(ids=ids, size=len(there), position=0, cursor=None)

    def letters(self, ids: Sequence[str]) -> list[JobRecord]:
        return [one for one in (*self.active, *self.ended) if one.id in ids]


def test_what_ends_in_the_millisecond_of_a_look_is_met_once_whichever_side_of_it() -> None:
    index = Index()
    watch = record.Watch(cast(Reads, index))
    index.active = [ended(number, state=State.ACTIVE, ended_ms=0, priority=7) for number in (1, 2)]
    watch.look()
    index.now, index.active = BEGIN_MS + 190, index.active[:1]
    index.ended = [ended(2)]
    watch.look()
    index.active, index.ended = [], [ended(1), ended(2)]
    watch.look()
    index.now += 1
    watch.look()
    watch.look()
    assert [job.priority for job in watch.recording.jobs()] == [7, 7]


# -- from a live pool ----------------------------------------------------------------------------------------------


@dataclass
class Ground:
    """A recording of the pool `default`. Its clock moves by a second with each sleep, when the next step is done."""

    scene: Scene
    path: Path
    steps: list[Callable[[], object]] = field(default_factory=list)
    now_s: float = 0.0
    report: Report = field(default_factory=lambda: Report(bench="record", run={}))
    out: io.StringIO = field(default_factory=io.StringIO)

    def sleep(self, seconds: float) -> None:
        self.now_s += 1
        if self.steps:
            self.steps.pop(0)()

    def run(self, *steps: Callable[[], object], **given: Any) -> Workload | None:
        """Records while the steps are done, one between two looks. What was written."""
        self.steps = list(steps)
        usual = {"pool": "default", "output": str(self.path), "seconds": len(steps), "wait": 0}
        plan = record.Plan(**{**usual, **given})
        record.run(self.report, Progress(self.out), plan, clock=lambda: self.now_s, sleep=self.sleep)
        return traces.read(self.path, seed=1, slots=1) if self.path.exists() else None

    def add(self, **given: Any) -> Callable[[], object]:
        return lambda: self.scene.add(**given)

    def lease(self) -> Sequence[LeasedJob]:
        self.leased = self.scene.lease()
        return self.leased

    def next_ms(self) -> None:
        """What follows is later on the store's clock than all before."""
        before_ms = shards.reads("default").now_ms()
        while shards.reads("default").now_ms() == before_ms:
            pass

    def complete(self) -> None:
        self.scene.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1) for job in self.leased])


@pytest.fixture
def ground(store: Store, shard_keys: Any, tmp_path: Path, db: None) -> Ground:
    return Ground(Scene(store, shard_keys), tmp_path / "trace.jsonl")


def test_what_goes_through_a_pool_is_a_trace_that_can_be_replayed(ground: Ground, tmp_path: Path) -> None:
    scene = ground.scene
    scene.add(tenant="early")
    ground.next_ms()

    def arrive() -> None:
        scene.add(tenant="ant", lane="mail", priority=5, cost=3, deadline_ms=now_ms() + HOUR_MS)
        scene.add(2, tenant="bee")
        scene.add(tenant="late", delay_ms=HOUR_MS)

    found = ground.run(arrive, ground.lease, ground.complete, lambda: scene.kill(tenant="cat"), lambda: None)
    assert found is not None
    [ant, *bees, cat] = found.jobs
    assert (ant.tenant, ant.lane, ant.priority, ant.cost) == ("ant", "mail", 5, 3)
    assert abs(ant.deadline_us - ant.at_us - HOUR_MS * 1000) < 60_000_000
    assert [(job.tenant, job.priority, job.cost) for job in bees] == [("bee", 0, 0)] * 2
    assert cat.tenant == "cat"
    assert all(job.service_us > 0 for job in found.jobs)
    figures = ground.report.figures
    assert (figures["jobs"], figures["tenants"], figures["not_ended"], figures["unseen"]) == (4, 3, 1, 0)
    assert "1 left out: they have arrived and not ended" in ground.out.getvalue()

    file = tmp_path / "figures.json"
    words = ("--trace", str(ground.path), "--policy", "wfq", "--profile", "quick", "--json", str(file))
    call_command("bench", "simulate", *words)
    assert {row["jobs"] for row in json.loads(file.read_text())["rows"]} == {4}


def test_more_than_a_page_that_ended_in_one_millisecond_is_recorded_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "PAGE", 2)
    monkeypatch.setattr(record, "READ_TOGETHER", 3)

    def both() -> None:
        ground.lease()
        ground.complete()

    found = ground.run(ground.add(number=5), ground.lease, ground.complete, ground.add(number=2), both, lambda: None)
    assert found is not None
    assert len(found.jobs) == 7
    assert ground.report.figures["unseen"] == 2


def test_the_last_arrivals_may_end_while_it_waits_and_nothing_else_is_taken(ground: Ground) -> None:
    def late() -> None:
        ground.complete()
        ground.next_ms()
        ground.scene.end(tenant="after")

    found = ground.run(ground.add(), ground.lease, late, lambda: None, seconds=2, wait=60)
    assert found is not None
    assert [job.tenant for job in found.jobs] == ["acme"]
    assert ground.now_s < 60  # all had ended
    assert ground.report.figures["not_ended"] == 0


def test_a_store_that_is_away_for_a_while_costs_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def away(self: Reads) -> int:
            patch.undo()
            raise StoreUnavailable("away")

        def hide() -> None:
            ground.scene.end()
            patch.setattr(Reads, "now_ms", away)

        found = ground.run(hide, lambda: None, lambda: None)
    assert found is not None
    assert len(found.jobs) == 1


def test_what_may_be_missing_is_said(ground: Ground, settings: Any) -> None:
    settings.DUCTOR = {**settings.DUCTOR, "REPLAY_WINDOW_SECONDS": 60}

    def long() -> None:
        ground.now_s += 90

    ground.run(lambda: ground.scene.end(), long, lambda: None, seconds=100)
    assert "For 91 s the store could not be asked: what ended meanwhile may be missing." in ground.out.getvalue()


def test_a_signal_ends_it_and_what_there_is_is_written(ground: Ground) -> None:
    before = signal.getsignal(signal.SIGINT)
    found = ground.run(
        lambda: ground.scene.end(tenant="ant"), lambda: signal.raise_signal(signal.SIGINT), seconds=3_600, wait=600
    )
    assert found is not None
    assert [job.tenant for job in found.jobs] == ["ant"]
    assert (ground.now_s, ground.report.missed) == (2, [])
    assert signal.getsignal(signal.SIGINT) == before


def test_where_nothing_ended_no_file_is_written(ground: Ground) -> None:
    assert ground.run(ground.add(), lambda: None) is None
    assert ground.report.missed == ["No job arrived and ran to its end meanwhile: there is no trace."]


def test_an_anonymous_trace_names_nobody(ground: Ground) -> None:
    ground.run(lambda: ground.scene.end(tenant="acme", lane="secret"), lambda: None, anonymous=True)
    text = ground.path.read_text()
    assert ("acme" in text, "secret" in text, '"tenant": "t1"' in text) == (False, False, True)


def test_a_file_that_is_there_is_not_written_over(ground: Ground) -> None:
    ground.path.write_text("mine")
    with pytest.raises(CommandError, match="which is there: name another file, or say --force"):
        call_command("bench", "record", "--pool", "default", "--output", str(ground.path))
    assert ground.path.read_text() == "mine"
    assert ground.run(lambda: ground.scene.end(), lambda: None, force=True) is not None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--output", "x"), "--pool is missing: name the pool; known: default"),
        (("--pool", "nowhere", "--output", "x"), "'nowhere' is not a known pool; known: default"),
        (("--pool", "default"), "--output is missing: name the file that the trace goes to"),
        (("--pool", "default", "--output", "/nowhere/x"), "name a file in a directory that is there"),
        (("--pool", "default", "--output", "/"), "name a file in a directory that is there"),
    ],
)
def test_what_cannot_be_recorded_is_refused_at_once(words: Sequence[str], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("bench", "record", *words)


def test_the_command_offers_the_plan_of_the_test() -> None:
    defaults = {option.key: option.default for option in EXPERIMENTS["record"].options}
    assert record.Plan(**defaults) == record.Plan(pool=None, output=None)
