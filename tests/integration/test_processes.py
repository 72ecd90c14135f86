"""`manage.py worker --processes N` in earnest: who is replaced, who ends with whom, and one page for all of them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from queueapp import enqueue_many
from queueapp.states import Outcome, State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests import freezing
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, notes, record, until
from tests.integration.test_metrics import ANYWHERE, ask, scrape
from tests.unit.metrics.reading import total

pytestmark = pytest.mark.faults


def started(running: ManagedProcess) -> int:
    return sum("Worker started" in line for line in running.lines)


def all_up(running: ManagedProcess, number: int) -> None:
    until(lambda: started(running) >= number, what=running.output)


def alive(pid: int) -> bool:
    """Whether it runs; what nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(running: ManagedProcess) -> set[int]:
    path = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    return {int(pid) for pid in path.read_text().split()}


def blocked_in(running: ManagedProcess, place: Path, name: str = "block") -> int:
    """The process that has begun a job which waits."""
    jobs.block.enqueue(str(place), name)
    [(pid, _)] = until(lambda: notes(place, name), what=running.output)
    return int(pid)


@pytest.fixture
def frozen() -> Iterator[Callable[[int], None]]:
    """Stops a process, which then cannot end by itself."""
    pids: list[int] = []

    def freeze(pid: int) -> None:
        pids.append(pid)
        freezing.freeze(pid)

    yield freeze
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_one_that_is_killed_is_replaced_and_its_job_runs_again(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = worker("--processes", "2", "--slots", "1", "--worker-id", "box", LEASE_SECONDS=1)
    all_up(running, 2)
    assert len(children(running)) == 2
    blocked = jobs.block.enqueue(str(tmp_path))
    [(pid, _)] = until(lambda: notes(tmp_path, "block"))
    assert pid in children(running)
    os.kill(pid, signal.SIGKILL)
    running.wait_for("signal=SIGKILL")
    (tmp_path / "go").touch()
    assert blocked.wait(timeout=30).return_value == "went"
    all_up(running, 3)
    names = set(re.findall(r"Worker started worker=(box-\d)\.", running.output))
    assert names == {"box-1", "box-2"}
    assert running.stop() == 0
    assert record(reads, blocked.id).crashes == 1


def test_c128_a_signal_to_the_whole_group_lets_the_jobs_of_every_worker_end(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = worker("--processes", "2", "--slots", "1")
    all_up(running, 2)
    both = [jobs.block.enqueue(str(tmp_path)) for _ in range(2)]
    until(lambda: len(notes(tmp_path, "block")) == 2)
    assert len({pid for pid, _ in notes(tmp_path, "block")}) == 2
    os.killpg(running.pid, signal.SIGTERM)  # as a terminal does: the workers are told once, by their supervisor
    until(lambda: running.output.count("waiting for running jobs") == 2)
    (tmp_path / "go").touch()
    assert running.wait() == 0
    assert [record(reads, each.id).outcome for each in both] == [Outcome.COMPLETED] * 2
    assert reads.overview().workers == []


def test_c135_no_socket_is_open_in_two_processes(worker: Manage, store: Store) -> None:
    running = worker("--processes", "2", *ANYWHERE)
    all_up(running, 2)
    open_in = [sockets(pid) for pid in (running.pid, *children(running))]
    assert all(open_in)
    assert sum(map(len, open_in)) == len(set().union(*open_in))
    assert running.stop() == 0


def sockets(pid: int) -> set[str]:
    """Its sockets, by the names that the system has for them."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(os.readlink(entry))
    return {name for name in found if name.startswith("socket:")}


def test_the_second_signal_gives_back_at_once(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    running = worker("--processes", "2")
    blocked = jobs.block.enqueue(str(tmp_path))
    all_up(running, 2)
    until(lambda: notes(tmp_path, "block"))
    running.signal(signal.SIGINT)
    until(lambda: running.output.count("waiting for running jobs") == 2)
    running.signal(signal.SIGINT)
    assert running.wait() == 4
    assert record(reads, blocked.id).state is State.PENDING


def test_the_third_signal_kills(worker: Manage, store: Store, frozen: Callable[[int], None]) -> None:
    running = worker("--processes", "2", "--grace", "60")
    all_up(running, 2)
    pids = children(running)
    for pid in pids:
        frozen(pid)
    began = time.monotonic()
    until(lambda: _signalled(running), timeout=20)  # two that come together are one to the system
    assert running.wait() == 4
    assert time.monotonic() - began < 30, "sooner than the grace"
    assert not any(alive(pid) for pid in pids)


def _signalled(running: ManagedProcess) -> bool:
    if running.process.poll() is not None:
        return True
    running.signal(signal.SIGTERM)
    time.sleep(0.2)
    return False


def test_what_hangs_beyond_the_grace_is_killed(worker: Manage, store: Store, frozen: Callable[[int], None]) -> None:
    running = worker("--processes", "1", "--grace", "0.2")
    all_up(running, 1)
    [pid] = children(running)
    frozen(pid)
    assert running.stop() == 4
    assert not alive(pid)


def test_workers_never_outlive_a_supervisor_that_is_killed(worker: Manage, store: Store, tmp_path: Path) -> None:
    """Those that work end gracefully. One that cannot is ended by force: it would run beside its successor."""
    running = worker("--processes", "2", "--grace", "1")
    all_up(running, 2)
    pids = children(running)
    busy = blocked_in(running, tmp_path)
    assert busy in pids
    running.signal(signal.SIGKILL)
    running.process.wait(10)
    until(lambda: not any(alive(pid) for pid in pids))
    assert notes(tmp_path, "block-cancelled") or "given back" in running.output


def test_max_tasks_replaces_one_after_the_other_and_no_job_is_lost(worker: Manage, store: Store, reads: Reads) -> None:
    enqueue_many([jobs.noop.bind(n) for n in range(60)])
    running = worker("--processes", "2", "--slots", "2", "--max-tasks", "20")
    until(lambda: reads.overview().ended == 60, what=running.output)
    assert running.stop() == 0
    ran = [int(number) for number in re.findall(r"ran=(\d+) exit=6", running.output)]
    assert ran
    assert all(18 <= number <= 20 for number in ran), "up to a tenth sooner"
    assert "died" not in running.output


def test_a_batch_in_several_processes_ends_when_all_is_done(worker: Manage, store: Store, reads: Reads) -> None:
    enqueue_many([jobs.noop.bind(n) for n in range(100)])
    running = worker("--processes", "2", "--batch", "--max-tasks", "30")
    assert running.wait(60) == 0
    assert reads.overview().ended == 100


def test_a_worker_that_has_grown_is_replaced_after_its_jobs(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = worker("--processes", "1", "--slots", "2", "--max-memory", "300", "--grace", "0.1")
    all_up(running, 1)
    grown = jobs.grow.enqueue(400, str(tmp_path))
    running.wait_for("more memory than --max-memory")
    waiting = jobs.noop.enqueue()
    time.sleep(0.5)  # longer than the grace: what runs is not cut short for this
    assert record(reads, grown.id).state is State.ACTIVE
    assert record(reads, waiting.id).state is State.PENDING
    (tmp_path / "go").touch()
    assert grown.wait(timeout=30).return_value == 400
    waiting.wait(timeout=30)
    assert started(running) == 2
    assert "exit=6" in running.output
    assert running.stop() == 0


def test_a_worker_that_a_body_holds_beyond_its_time_limit_is_replaced_at_once(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = worker("--processes", "1", "--grace", "5")
    overdue = jobs.overstay.enqueue(str(tmp_path))
    running.wait_for("another takes its place")
    assert "code=5" in running.output
    assert record(reads, overdue.id).state is State.DEAD
    assert jobs.noop.enqueue(7).wait(timeout=30).return_value == 7
    assert started(running) == 2
    assert running.stop() == 0


def test_what_a_body_left_running_does_not_hold_up_the_next_worker(worker: Manage, store: Store) -> None:
    running = worker("--processes", "1", "--max-tasks", "1")
    jobs.leave_thread.enqueue()
    running.wait_for("another takes its place")
    assert "code=6" in running.output
    assert running.stop() == 0


def test_without_a_supervisor_a_worker_that_has_grown_ends(worker: Manage, store: Store, tmp_path: Path) -> None:
    running = worker("--max-memory", "300")
    jobs.grow.enqueue(400, str(tmp_path))
    running.wait_for("it ends when its running jobs have")
    (tmp_path / "go").touch()
    assert running.wait() == 0


def test_one_that_cannot_start_ends_the_supervisor(worker: Manage, store: Store) -> None:
    running = worker("--processes", "2", "--pool", "nowhere")
    assert running.wait() == 1
    assert "No worker can start" in running.output
    assert "nowhere" in running.output
    assert "Traceback" not in running.output


def test_one_page_for_all_and_no_counter_falls(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    running = worker("--processes", "2", "--slots", "2", "--with-scheduler", "--worker-id", "box", *ANYWHERE)
    assert ask(running, "/readyz")[0] == 503
    until(lambda: ask(running, "/readyz") == (200, "ok\n"), what=running.output)
    enqueue_many([jobs.noop.using(tenant=f"t{n % 3}").bind(n) for n in range(100)])

    def completed() -> float:
        return total(scrape(running), "ductor_tasks_completed_total", pool="default")

    def ran() -> float:
        return total(scrape(running), "ductor_task_exec_seconds_count", pool="default")

    until(lambda: completed() == 100)
    assert ran() == 100
    until(lambda: total(scrape(running), "ductor_scheduler_is_leader", pool="default") == 1)

    # One is killed: what it has counted stays, and the page says that it is not whole.
    pid = blocked_in(running, tmp_path)
    os.kill(pid, signal.SIGKILL)
    until(lambda: ask(running, "/readyz")[0] == 503)
    assert ask(running, "/healthz")[0] == 200
    assert completed() == 100
    until(lambda: ask(running, "/readyz")[0] == 200)
    assert completed() == 100
    (tmp_path / "go").touch()
    until(lambda: completed() == 101)
    assert running.stop() == 0


def test_a_worker_that_hangs_makes_the_whole_ill(worker: Manage, store: Store, frozen: Callable[[int], None]) -> None:
    running = worker("--processes", "2", "--worker-id", "box", *ANYWHERE)
    until(lambda: ask(running, "/readyz")[0] == 200)
    frozen(min(children(running)))
    status, text = ask(running, "/healthz")
    assert status == 503
    assert re.fullmatch(r"box-[12]: it does not answer within 5 s\n", text)
    for pid in children(running):
        os.kill(pid, signal.SIGCONT)
    assert running.stop() == 0


def test_the_probe_without_a_port_counts_the_workers(worker: Manage, manage: Manage, store: Store) -> None:
    running = worker("--processes", "2", "--worker-id", "box")
    all_up(running, 2)
    assert manage("worker", "--check", "--worker-id", "box", "--processes", "2").wait() == 0
    three = manage("worker", "--check", "--worker-id", "box", "--processes", "3")
    assert three.wait() == 1
    assert "only 2 of 3" in three.output
    assert running.stop() == 0


def test_lines_of_bodies_name_worker_job_and_attempt(worker: Manage, store: Store) -> None:
    running = worker("--processes", "1", "--worker-id", "box", "--log", "json")
    job = jobs.tell.using(tenant="acme").enqueue("a word")
    job.wait(timeout=30)
    running.wait_for("a word")
    line = json.loads(next(line for line in running.lines if "a word" in line))
    assert (line["logger"], line["message"]) == ("shop.orders", "a word")
    assert (line["worker"], line["job_id"], line["tenant"], line["attempt"]) == ("box-1", job.id, "acme", 1)
    assert line["task"] == "tests.integration.jobs.tell"
    assert running.stop() == 0
