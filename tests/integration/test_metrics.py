"""Metrics of real processes: what each serves, what they add up to, and what stays true when one dies or hangs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from queueapp import enqueue_many
from queueapp.inspection.collector import STORE
from queueapp.monitoring.page import page
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests import freezing
from tests.integration import jobs
from tests.integration.conftest import ROOT, Manage, ManagedProcess, notes, until
from tests.unit.metrics.reading import Samples, samples, total, value

HERE = {"pool": "default", "shard": "0"}
ANYWHERE = ("--metrics-addr", "127.0.0.1:0")
Site = Callable[[str], str]


def base(running: ManagedProcess) -> str:
    """Where this process serves: it says so."""
    running.wait_for("/metrics")
    found = re.search(r"(http://\S+)/metrics", running.output)
    assert found is not None
    return found[1]


def scrape(running: ManagedProcess) -> Samples:
    with urllib.request.urlopen(f"{base(running)}/metrics", timeout=10) as answer:
        return samples(answer.read())


def ask(running: ManagedProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{base(running)}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def site(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[[], Site]]:
    """Start a web process of a site whose processes keep their instruments together: a function that asks it."""
    started: list[subprocess.Popen[str]] = []

    def start() -> Site:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.site_process"],
            cwd=ROOT,
            env={
                **process_environment,
                "DJANGO_SETTINGS_MODULE": "tests.integration.process_settings",
                "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "site-metrics"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)

        def request(what: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
            return str(json.loads(process.stdout.readline()))

        return request

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_c158_depth_is_one_truth_and_counters_are_sums(
    site: Callable[[], Site], worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    """C158: 4 web processes and 3 workers; depth 100, then 0; every page says so, and counters never fall."""
    sites = [site() for _ in range(4)]
    for number, web in enumerate(sites):
        for _ in range(number + 1):
            web("fail")
    enqueue_many([jobs.noop.using(tenant=f"t{n % 3}").bind(n) for n in range(100)])

    pages = [samples(web("metrics")) for web in sites]
    assert [value(seen, "ductor_pending_tasks", **HERE) for seen in pages] == [100] * 4
    assert [total(seen, "ductor_enqueue_failed_total", pool="default") for seen in pages] == [10] * 4

    workers = [worker("--slots", "2", *ANYWHERE) for _ in range(3)]
    until(lambda: reads.overview().ended == 100)

    def completed() -> float:
        return sum(total(scrape(running), "ductor_tasks_completed_total", pool="default") for running in workers)

    until(lambda: completed() == 100, what="each completed job is counted by one worker")
    pages = [until(partial(drained, web)) for web in sites]
    assert [value(seen, "ductor_longest_pending_wait_seconds", **HERE) for seen in pages] == [0] * 4
    assert all(("ductor_pending_tasks", ()) not in scrape(running) for running in workers)
    for running in workers:
        assert running.stop() == 0


def drained(web: Site) -> Samples | None:
    """The page, once its look at the store is newer than the last job."""
    seen = samples(web("metrics"))
    return seen if value(seen, "ductor_pending_tasks", **HERE) == 0 else None


@pytest.mark.faults
def test_c159_a_paused_leader_and_waiting_jobs_are_seen_to_wait(manage: Manage, store: Store) -> None:
    """C159: depth looked fine while the oldest item was hours old. Waits, the leader's age and its silence grow."""
    running = manage("scheduler", *ANYWHERE, LEADER_TTL_SECONDS=1)
    until(lambda: total(scrape(running), "ductor_scheduler_is_leader", **HERE) == 1)
    freezing.freeze(running.pid)
    enqueue_many([jobs.noop.bind(n) for n in range(10)])
    STORE.forget()

    def look() -> tuple[float, float, float, float]:
        seen = samples(page("", [STORE])[0])
        return (
            value(seen, "ductor_longest_pending_wait_seconds", **HERE),
            value(seen, "ductor_scheduler_leader_age_seconds", **HERE),
            value(seen, "ductor_scheduler_last_tick_timestamp_seconds", **HERE),
            value(seen, "ductor_scheduler_leader_term", **HERE),
        )

    wait_s, age_s, tick, term = look()
    later = until(lambda: (seen := look())[0] >= wait_s + 1.5 and seen)
    assert later[1] >= age_s + 1, "the leader's age"
    assert later[2:] == (tick, term), "the last tick stands still: `time() - it` grows"
    running.signal(signal.SIGCONT)
    until(lambda: look()[2] > tick, what="it ticks again")
    assert running.stop() == 0


def test_a_worker_shows_what_runs_while_it_runs(worker: Manage, store: Store, tmp_path: Path) -> None:
    running = worker("--slots", "2", *ANYWHERE)
    until(lambda: ask(running, "/readyz") == (200, "ok\n"))
    blocked = jobs.block.using(tenant="acme").enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    busy = {"pool": "default", "tenant": "acme"}
    until(lambda: total(scrape(running), "ductor_tenant_service_seconds_total", **busy) > 0, what="it still runs")
    seen = scrape(running)
    assert total(seen, "ductor_tasks_completed_total", **busy) == 0
    (tmp_path / "go").touch()
    blocked.wait(timeout=30)
    until(lambda: total(scrape(running), "ductor_tasks_completed_total", **busy) == 1)
    seen = scrape(running)
    spent_s = value(seen, "ductor_worker_busy_seconds_total", pool="default")
    assert spent_s == pytest.approx(value(seen, "ductor_task_exec_seconds_sum", pool="default"))
    assert 0 < spent_s < value(seen, "ductor_worker_slot_seconds_total")
    assert ask(running, "/healthz") == (200, "ok\n")
    running.signal(signal.SIGTERM)
    assert running.wait() == 0


def test_a_scheduler_shows_the_pools_and_whether_it_leads(manage: Manage, store: Store) -> None:
    first = manage("scheduler", *ANYWHERE)
    first.wait_for("Leading")
    second = manage("scheduler", *ANYWHERE)
    until(lambda: ask(second, "/readyz")[0] == 200)
    until(lambda: ("ductor_outbox_entries", (("state", "waiting"),)) in scrape(second))
    jobs.noop.enqueue()
    until(lambda: value(scrape(first), "ductor_pending_tasks", **HERE) == 1)
    pages = [scrape(first), scrape(second)]
    assert [value(seen, "ductor_scheduler_is_leader", **HERE) for seen in pages] == [1, 0]
    assert [value(seen, "ductor_scheduler_leader_transitions_total", **HERE) for seen in pages] == [1, 0]
    assert [value(seen, "ductor_outbox_entries", state="waiting") for seen in pages] == [0, 0]
    assert first.stop() == 0
    until(lambda: value(scrape(second), "ductor_scheduler_is_leader", **HERE) == 1)
    assert second.stop() == 0


@pytest.mark.faults
def test_a_process_without_its_store_is_well_but_not_ready(manage: Manage, tmp_path: Path) -> None:
    nowhere = {"REDIS_URL": f"unix://{tmp_path}/nothing.sock"}
    running = manage("worker", "--no-reload", *ANYWHERE, env=nowhere)
    assert ask(running, "/healthz") == (200, "ok\n")
    assert ask(running, "/readyz") == (503, "starting: waiting for the database or the store\n")
    assert scrape(running)
    running.signal(signal.SIGTERM)
    assert running.wait() == 0


def test_a_port_that_is_taken_ends_the_process_with_one_line(worker: Manage, manage: Manage) -> None:
    taken = base(worker(*ANYWHERE)).removeprefix("http://")
    for refused in (worker("--metrics-addr", taken), manage("scheduler", "--metrics-addr", taken)):
        assert refused.wait() == 1
        assert f"Cannot listen on {taken} (Address already in use)" in refused.output
        assert "Traceback" not in refused.output


@pytest.mark.faults
def test_a_stack_serves_one_page_for_all_its_processes(manage: Manage, store: Store, reads: Reads) -> None:
    running = manage("stack", "--no-web", "--workers", "2", *ANYWHERE)
    until(lambda: ask(running, "/readyz") == (200, "ok\n"), timeout=60)
    enqueue_many([jobs.noop.using(tenant="acme").bind(n) for n in range(200)])
    done = {"pool": "default", "tenant": "acme"}
    until(lambda: total(scrape(running), "ductor_tasks_completed_total", **done) == 200)
    until(lambda: value(scrape(running), "ductor_pending_tasks", **HERE) == 0, what="the store to be read again")
    until(lambda: value(scrape(running), "ductor_scheduler_is_leader", **HERE) == 1, what="a leader")
    assert value(scrape(running), "ductor_scheduler_leader_transitions_total", **HERE) == 1
    pids = [int(entry.info["pid"]) for entry in reads.overview().workers]
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGKILL)
    running.wait_for("starting it again")
    assert total(scrape(running), "ductor_tasks_completed_total", **done) == 200, "what the dead one counted stays"
    assert running.stop() == 0


def test_check_answers_in_one_line(worker: Manage, manage: Manage, store: Store) -> None:
    running = worker("--worker-id", "probed")
    running.wait_for("Worker started")
    leading = manage("scheduler", "--scheduler-id", "only")
    leading.wait_for("Leading")
    until(lambda: manage("worker", "--check", "--worker-id", "probed").wait() == 0)
    probe = manage("worker", "--check", "--worker-id", "probed")
    assert probe.wait() == 0
    assert re.fullmatch(r"ok: worker probed\.… was heard of \d+\.\d s ago", probe.output)
    probe = manage("scheduler", "--check")
    assert probe.wait() == 0
    assert re.fullmatch(r"ok: every pool is led, by only\.\w+", probe.output)
    probe = manage("worker", "--check", "--worker-id", "somebody-else")
    assert probe.wait() == 1
    assert probe.output == "CommandError: no worker somebody-else.… has been heard of in pool default lately"
