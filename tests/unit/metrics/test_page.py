"""One page for several processes: sums that do not fall when a process ends, gauges that go with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from queueapp.monitoring import page as pages
from queueapp.monitoring.page import page, register
from tests.unit.metrics.reading import Samples, samples, value

ROOT = Path(__file__).resolve().parents[3]
COUNTING = """
import sys
from queueapp import metrics
metrics.TASK_RETRIES.labels("mail").inc(int(sys.argv[1]))
metrics.QUEUE_WAIT.labels("mail").observe(float(sys.argv[2]))
metrics.MAX_OBSERVED_WAIT.labels("mail").set(float(sys.argv[2]))
print("counted", flush=True)
sys.stdin.read()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The directory of the processes; not there yet."""
    return tmp_path / "metrics"


@pytest.fixture
def counting(shared: Path) -> Iterator[Start]:
    """Start a process that counts so many retries and one wait, and lives until its standard input ends."""
    started: list[subprocess.Popen[str]] = []

    def start(retries: int, wait_s: float) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", COUNTING, str(retries), str(wait_s)],
            cwd=ROOT,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "counted\n"
        return process

    yield start
    for process in started:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait(10)


def read(shared: Path) -> Samples:
    text, _ = page("", [], shared)
    return samples(text)


def test_the_processes_of_a_directory_are_added_up(shared: Path, counting: Start) -> None:
    counting(3, 0.2)
    counting(4, 5)
    seen = read(shared)
    assert value(seen, "ductor_task_retries_total", pool="mail") == 7
    assert value(seen, "ductor_queue_wait_seconds_count", pool="mail") == 2
    assert value(seen, "ductor_queue_wait_seconds_sum", pool="mail") == pytest.approx(5.2)
    assert value(seen, "ductor_max_observed_wait_seconds", pool="mail") == 5, "a high-water mark is no sum"


def test_what_ended_processes_counted_stays_and_their_files_go(shared: Path, counting: Start) -> None:
    """C158: counters never go down except on a restart of all."""
    counting(1, 0.2)
    for retries in (10, 100):
        end(counting(retries, 60))
    for _ in range(3):  # adding up again must not add again
        seen = read(shared)
        assert value(seen, "ductor_task_retries_total", pool="mail") == 111
        assert value(seen, "ductor_queue_wait_seconds_bucket", pool="mail", le="60.0") == 3
        assert value(seen, "ductor_max_observed_wait_seconds", pool="mail") == 0.2, "the gauge of a dead process"
    end(counting(1000, 60))
    assert value(read(shared), "ductor_task_retries_total", pool="mail") == 1111
    names = sorted(path.name for path in shared.glob("*.db"))
    assert len([name for name in names if not name.endswith("_ended.db")]) == 4, names


def test_nobody_adds_up_while_another_reads(shared: Path, counting: Start) -> None:
    end(counting(5, 1))
    with pages.locked(shared) as alone:
        assert alone
        assert value(read(shared), "ductor_task_retries_total", pool="mail") == 5
        assert not list(shared.glob("*_ended.db")), "it was added up under somebody's eyes"
    read(shared)
    assert list(shared.glob("*_ended.db"))


def test_a_file_that_is_just_being_made_harms_nothing(shared: Path, counting: Start) -> None:
    ended = counting(5, 1)
    end(ended)
    (shared / f"counter_{os.getpid()}.db").touch()
    (shared / f"histogram_{ended.pid}.db").write_bytes(b"")
    assert value(read(shared), "ductor_task_retries_total", pool="mail") == 5


def test_without_a_directory_it_is_this_process_and_what_is_shown_beside() -> None:
    text, content_type = page("", [Beside()])
    assert value(samples(text), "beside") == 1
    assert content_type.startswith("text/plain")
    assert b"ductor_worker_slot_seconds_total" in text


def test_what_stands_in_the_default_registry_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "REGISTRY", CollectorRegistry())
    beside = Beside()
    register(beside)
    register(beside)
    text, _ = page("", [beside])
    assert samples(text) == {("beside", ()): 1.0}


def test_prometheus_may_ask_for_openmetrics() -> None:
    text, content_type = page("application/openmetrics-text; version=1.0.0", [])
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_the_instruments_stand_in_the_default_registry() -> None:
    assert REGISTRY.get_sample_value("ductor_worker_slot_seconds_total") is not None


class Beside:
    """A collector with one gauge."""

    def describe(self) -> list[GaugeMetricFamily]:
        return [GaugeMetricFamily("beside", "beside")]

    def collect(self) -> list[GaugeMetricFamily]:
        return [GaugeMetricFamily("beside", "beside", value=1.0)]
