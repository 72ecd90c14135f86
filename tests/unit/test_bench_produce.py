"""`bench produce`: what it sends into a pool of the project, what it says before and after, and what it refuses."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.test import override_settings

from queueapp import task
from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.experiments import produce
from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.producing import OWN, Batches, renamed
from queueapp.bench.workloads import Job, Workload
from queueapp.compat import Task, TaskContext
from queueapp.errors import InvalidOption
from queueapp.models import Tenant
from queueapp.producer.discovery import find, registry
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from queueapp.store.views import JobRecord
from tests.working import work

pytestmark = pytest.mark.django_db

DUMMY = {"BACKEND": f"{Task.__module__.rpartition('.')[0]}.backends.dummy.DummyBackend"}
TRACE: list[dict[str, Any]] = [
    {"at_us": 0, "tenant": "ant", "service_us": 1000},
    {"at_us": 1000, "tenant": "bee", "service_us": 2000, "lane": "mail", "priority": 7, "cost": 0.5},
    {"at_us": 1000, "tenant": "ant", "service_us": 1000, "deadline_us": 60_000_000, "cost": 12.5},
]
Command = Callable[..., dict[str, Any]]


@task
def named(number: int, tenant: str) -> str:
    return f"{tenant} {number}"


@task(takes_context=True)
def with_context(context: TaskContext, service_us: int) -> int:
    return service_us


@task
def whatever(**given: object) -> list[str]:
    return sorted(given)


@task
def plain() -> str:
    return "ran"


@task
def needy(number: int, order: str) -> None: ...


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(['{"ductor_trace": 1}', *map(json.dumps, TRACE)]) + "\n")
    return str(path)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs `bench produce`; what it writes."""

    def run(*words: str) -> dict[str, Any]:
        file = tmp_path / "figures.json"
        call_command("bench", "produce", *words, "--json", str(file))
        written: dict[str, Any] = json.loads(file.read_text())
        return written

    return run


def jobs(reads: Reads, store: Store) -> list[JobRecord]:
    """All that wait, in the order in which they came."""
    ids = sorted(job_id for _, _, job_id in store.peek(250))
    return [record for record in reads.jobs(ids) if record is not None]


# -- what is sent --------------------------------------------------------------------------------------------------


def test_a_trace_goes_into_the_pool_with_all_that_its_jobs_declare(
    command: Command, trace: str, store: Store, reads: Reads, capsys: pytest.CaptureFixture[str]
) -> None:
    before_ms = reads.now_ms()
    written = command(trace, "--pool", "default", "--yes")
    first, second, third = jobs(reads, store)
    assert {record.task for record in (first, second, third)} == {OWN}
    assert [(record.tenant, record.lane, record.priority) for record in (first, second, third)] == [
        ("ant", "main", 0),
        ("bee", "mail", 7),
        ("ant", "main", 0),
    ]
    assert (first.deadline_ms, second.deadline_ms) == (0, 0)
    assert 0 <= third.deadline_ms - before_ms - 60_000 < 30_000
    figures = written["figures"]
    assert (figures["jobs"], figures["sent"], figures["refused"]) == (3, 3, 0)
    assert figures["lag_ms_max"] >= figures["lag_ms_p50"] >= 0
    assert written["rows"] == [
        {"tenant": "ant", "sent": 2, "refused": 0},
        {"tenant": "bee", "sent": 1, "refused": 0},
    ]
    said = capsys.readouterr().out
    assert "3 jobs of trace, seed 42, for the pool default" in said
    assert "no worker for this pool, 0 jobs wait in it" in said


def test_declared_costs_are_what_a_job_may_declare(trace: str, store: Store) -> None:
    batches = Batches("default", OWN, "sleep")
    costs = [
        batches.bound(Job(number=1, at_us=0, tenant="a", service_us=1, cost=cost), 0).task.cost for cost in (0, 0.5, 7)
    ]
    assert costs == [None, 1, 7]


def test_the_workers_of_a_host_that_never_heard_of_the_benchmark_run_them(
    command: Command, trace: str, store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(trace, "--pool", "default", "--yes")
    ids = [record.id for record in jobs(reads, store)]
    monkeypatch.delitem(registry, OWN)
    monkeypatch.delitem(sys.modules, OWN.rpartition(".")[0])
    assert work(slots=3) == 3
    records = [record for record in reads.jobs(ids) if record is not None]
    assert {str(record.outcome) for record in records} == {"completed"}
    for record, job in zip(records, TRACE, strict=True):
        began_us, ended_us = json.loads(record.result or b"")
        assert ended_us - began_us >= job["service_us"]


def test_a_host_that_names_its_queues_can_import_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry, OWN, raising=False)
    monkeypatch.delitem(sys.modules, OWN.rpartition(".")[0], raising=False)
    with override_settings(TASKS={"default": {**django_settings.TASKS["default"], "QUEUES": ["emails"]}}):
        assert find(OWN).using(queue_name="emails").module_path == OWN


def test_a_late_sender_moves_no_deadline() -> None:
    batches = Batches("default", OWN, "sleep")
    bound = batches.bound(Job(number=1, at_us=0, tenant="a", service_us=1, deadline_us=2_500_000), 1_000.0)
    assert bound.task.deadline == datetime.fromtimestamp(1_002.5, UTC)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("named", {"number": 4, "tenant": "ant"}),
        ("with_context", {"service_us": 9}),
        ("whatever", {"number": 4, "tenant": "ant", "service_us": 9, "execution": "cpu"}),
        ("plain", {}),
    ],
)
def test_a_task_of_the_host_gets_what_its_function_has(path: str, given: Mapping[str, object]) -> None:
    bound = Batches("default", f"{__name__}.{path}", "cpu").bound(Job(number=4, at_us=0, tenant="ant", service_us=9), 0)
    assert (bound.args, bound.kwargs) == ((), given)


def test_tenants_take_turns_for_those_of_the_workload(command: Command, trace: str, store: Store, reads: Reads) -> None:
    command(trace, "--pool", "default", "--yes", "--tenants", "acme,globex")
    assert [record.tenant for record in jobs(reads, store)] == ["acme", "globex", "acme"]


def test_few_names_are_shared_by_many_tenants() -> None:
    sent = [Job(number=number, at_us=0, tenant=tenant, service_us=1) for number, tenant in enumerate("abc", start=1)]
    found = renamed(
        Workload(name="w", seed=1, slots=1, load=1, jobs=sent, big="b", tenants=("a", "b", "c")), ["x", "y"]
    )
    assert ([job.tenant for job in found.jobs], found.big, found.tenants) == (["x", "y", "x"], "y", ("x", "y"))


def test_count_rate_and_seed_stand_before_the_profile() -> None:
    own = produce.Plan(workload="bursty", pool="default").made()
    other = produce.Plan(workload="bursty", pool="default", count=50, rate=10.0, seed=7).made()
    assert (len(own.jobs), own.seed) == (400, 42)
    assert (len(other.jobs), other.seed) == (50, 7)
    assert other.jobs[-1].at_us == 5_000_000


# -- what is refused -----------------------------------------------------------------------------------------------


def test_refused_jobs_are_counted_by_the_reason_and_the_others_are_sent(
    command: Command, trace: str, store: Store, reads: Reads, capsys: pytest.CaptureFixture[str]
) -> None:
    Tenant.objects.create(key="bee")
    with override_settings(DUCTOR={**django_settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}):
        written = command(trace, "--pool", "default", "--yes")
    figures = written["figures"]
    assert (figures["sent"], figures["refused"], figures["refused_unknown_tenant"]) == (1, 2, 2)
    assert [record.tenant for record in jobs(reads, store)] == ["bee"]
    assert "2 refused: unknown_tenant. tenant 'ant' has no row" in capsys.readouterr().out


def test_when_none_is_taken_the_command_fails(trace: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    reject = {**django_settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}
    with override_settings(DUCTOR=reject), pytest.raises(SystemExit, match="1"):
        call_command("bench", "produce", trace, "--pool", "default", "--yes")
    assert "MISSED: None of the 3 jobs was taken." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--pool is missing: name the pool; known: default"),
        (("--pool", "nowhere"), "'nowhere' is not a known pool; known: default"),
        (("--pool", "default", "--task", "nobody.tasks.none"), "No task is called 'nobody.tasks.none' here."),
        (
            ("--pool", "default", "--task", f"{__name__}.needy"),
            "needs 'order': a workload gives number, tenant, service_us",
        ),
        (("--pool", "default", "--tenants", "no name"), "'no name' is no list of tenants"),
        (("--pool", "default", "--profile", "none"), "profile is 'none', which cannot be read"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(trace: str, words: Sequence[str], told: str) -> None:
    with pytest.raises(CommandError, match=told.replace("(", r"\(")):
        call_command("bench", "produce", trace, *words, "--yes")


def test_what_is_no_workload_is_refused_with_the_names() -> None:
    with pytest.raises(CommandError, match=r"'nothing' is no workload: give one of uniform, .*, or the file of"):
        call_command("bench", "produce", "nothing", "--pool", "default")


def test_a_task_of_another_backend_is_refused() -> None:
    with override_settings(TASKS={**django_settings.TASKS, "other": DUMMY}):
        other = task(backend="other")(named.func)
    try:
        with pytest.raises(InvalidOption, match="goes to the backend 'other', which is not Ductor's"):
            Batches("default", other.module_path, "sleep")
    finally:
        registry[other.module_path] = named


def test_a_store_that_is_away_is_told_before_anybody_is_asked(trace: str, away: None) -> None:
    with pytest.raises(CommandError, match=r"127\.0\.0\.1:1"):
        call_command("bench", "produce", trace, "--pool", "default")


# -- asking, trying, stopping --------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_first_jobs_and_the_digest_and_needs_no_store(
    command: Command, away: None, capsys: pytest.CaptureFixture[str]
) -> None:
    made = produce.Plan(workload="uniform", pool="default", seed=3).made()
    written = command("uniform", "--pool", "default", "--seed", "3", "--dry-run")
    said = capsys.readouterr().out
    assert f"digest {made.digest()}" in said
    assert "A dry run: nothing was sent." in said
    assert [line.split()[-2:] for line in said.splitlines() if line.endswith(", main")] == [
        [f"{job.tenant},", "main"] for job in made.jobs[:10]
    ]
    assert (written["run"]["workload_digest"], written["figures"]["sent"]) == (made.digest(), 0)


@pytest.mark.parametrize(("answer", "sent"), [("y", 3), ("n", 0), ("", 0)])
def test_it_asks_before_it_sends(
    answer: str, sent: int, command: Command, trace: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("builtins.input", reply)
    assert command(trace, "--pool", "default")["figures"]["sent"] == sent
    assert reads.overview().waiting == sent
    assert asked == ["Send 3 jobs to default? [y/N] "]


def test_where_there_is_nobody_to_ask_it_names_the_option(
    trace: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(question: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(CommandError, match="say --yes"):
        call_command("bench", "produce", trace, "--pool", "default")
    assert reads.overview().waiting == 0


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of the signals are afterwards what they were."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_it_says_what_was_sent(
    number: signal.Signals, trace: str, reads: Reads, handlers: None
) -> None:
    report = Report(bench="produce", run={})

    def sleep(seconds: float) -> None:
        signal.raise_signal(number)

    plan = produce.Plan(workload=trace, pool="default", yes=True)
    produce.run(report, Progress(io.StringIO()), plan, clock=lambda: 1_000.0, sleep=sleep)
    assert report.missed == ["It was stopped: 1 of 3 jobs were sent."]
    assert report.figures["sent"] == reads.overview().waiting == 1


def test_the_command_offers_the_plan_of_the_test() -> None:
    defaults = {option.key: option.default for option in EXPERIMENTS["produce"].options} | {"workload": "uniform"}
    assert produce.Plan(**defaults) == produce.Plan(workload="uniform", pool=None)
