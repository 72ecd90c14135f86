"""The demonstration and the benchmarks as commands, small: real processes, a killed worker, figures as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pytest

from queueapp.bench import profiles
from queueapp.bench.results.reading import read

ROOT = Path(__file__).resolve().parents[2]
TRAP = {"REDIS_URL": "redis://nowhere.invalid:6379/0", "DATABASE_URL": "sqlite:////nowhere/at/all.sqlite3"}
"""What an environment may name: neither may be looked at."""


def command(*arguments: str, temporary: Path) -> subprocess.Popen[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_", "DJANGO_"))
    }
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**inherited, **TRAP, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def temporary() -> Path:
    """Short, because the socket's path is limited; ours, so that what is left behind is seen."""
    return Path(tempfile.mkdtemp(prefix="d-"))


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_small_demonstration_loses_nothing_and_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    process = command("demo", "--jobs", "250", "--json", str(file), temporary=temporary)
    output, _ = process.communicate(timeout=180)
    written = json.loads(file.read_text())
    figures = written["figures"]
    assert written["bench"] == "demo"
    assert figures["enqueued"] == figures["completed"] > 1000, output
    assert figures["lost"] == figures["recorded_twice"] == 0, output
    assert "killed worker" in output
    assert figures["flow_runs"] == figures["flow_runs_completed"] == figures["flow_reports"] == 3, output
    assert figures["flow_retried_chunk_attempts"] == 2, output
    assert figures["flow_rows_imported"] == 3 * 8 * 20, output
    assert "3 runs started, 3 completed" in output
    # A run this small on a busy machine may miss the ratios; then it says so and how it ends.
    assert (process.returncode == 0) == ("MISSED" not in output)
    assert figures["small_p95_ratio"] > 1, output
    assert list(temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_process_of_the_demonstration(temporary: Path, number: int) -> None:
    process = command("demo", temporary=temporary)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "workers are up" in line:
            break
    process.send_signal(number)
    with process:
        lines += process.stdout.readlines()
    assert process.returncode == 130, "".join(lines)
    assert "nothing was kept" in lines[-1]
    assert list(temporary.iterdir()) == []
    assert not _processes_of(temporary)


@pytest.mark.long
def test_bench_memory_keeps_its_promise(temporary: Path, tmp_path: Path) -> None:
    file = tmp_path / "memory.json"
    process = command("bench", "memory", "--jobs", "20000", "--json", str(file), temporary=temporary)
    output, _ = process.communicate(timeout=110)
    assert process.returncode == 0, output
    assert 100 < json.loads(file.read_text())["figures"]["bytes_per_job"] <= 400
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_bench_throughput_has_its_figures(temporary: Path, tmp_path: Path) -> None:
    file = tmp_path / "throughput.json"
    process = command(
        "bench", "throughput", "--jobs", "2000", "--starts", "20", "--json", str(file), temporary=temporary
    )
    output, _ = process.communicate(timeout=110)
    figures = json.loads(file.read_text())["figures"]
    for name in ("enqueue_single_per_s", "enqueue_bulk_per_s", "drain_per_s", "start_ms_p50", "start_ms_p99"):
        assert figures[name] > 0, output
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_bench_walk_has_its_figures(temporary: Path, tmp_path: Path) -> None:
    file = tmp_path / "walk.json"
    sizes = ("--tenants", "50", "--jobs", "2000", "--blocked", "50", "--rounds", "3")
    process = command("bench", "walk", *sizes, "--json", str(file), temporary=temporary)
    output, _ = process.communicate(timeout=110)
    written = json.loads(file.read_text())
    assert (written["bench"], written["run"]["policy"]) == ("walk", "tiered")
    for name in ("ratio_tenants", "ratio_backlog", "ratio_blocked"):
        assert written["figures"][name] > 0, output
    assert list(temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "sizes", "figures"),
    [
        (
            "ceiling",
            ("--jobs", "500", "--rounds", "2", "--batches", "50,250"),
            ("admit_per_s", "dispatch_per_s", "end_to_end_per_s", "chain_per_s", "end_to_end_server_us_per_job"),
        ),
        ("idle", ("--seconds", "1", "--settle", "0"), ("commands_per_s", "server_us_per_s")),
        (
            "failover",
            ("--trials", "1", "--arms", "crash,pause", "--ttls", "1"),
            ("crash_ms_p50", "pause_ms_p50", "pause_jobs", "pause_recovered"),
        ),
        (
            "flows",
            ("--rounds", "2", "--steps", "4", "--runs", "5", "--flood", "20", "--slots", "2", "--items", "40"),
            ("matched_net_ms_p50", "queued_net_ms_p50", "wait_ratio", "gap_ratio", "flood_jobs_per_s", "items_per_s"),
        ),
    ],
)
def test_bench_with_processes_of_both_kinds_has_its_figures(
    temporary: Path, tmp_path: Path, name: str, sizes: tuple[str, ...], figures: tuple[str, ...]
) -> None:
    file = tmp_path / "figures.json"
    process = command("bench", name, *sizes, "--json", str(file), temporary=temporary)
    output, _ = process.communicate(timeout=110)
    written = json.loads(file.read_text())
    assert all(written["figures"][figure] > 0 for figure in figures), output
    assert (process.returncode == 0) == ("MISSED" not in output)
    assert list(temporary.iterdir()) == []
    assert not _processes_of(temporary)


LOSSY = """
[run]
slots = 4
[tenants.even]
acme = 1
globex = 1
[limits.acme]
ceiling = 1
[failures]
lost = 0.3
attempts = 2
lease_ms = 400
"""
"""A run that is lost shows after its lease, and the second one is a job's last."""


@pytest.mark.timeout(200)
def test_a_tiny_matrix_accounts_for_every_job(temporary: Path, tmp_path: Path) -> None:
    profile, directory, file = tmp_path / "lossy.toml", tmp_path / "results", tmp_path / "matrix.json"
    profile.write_text(LOSSY)
    process = command(
        *("bench", "matrix", "--scheduler", "fifo,wfq", "--workload", "uniform", "--dispatch", "direct,none"),
        *("--profile", str(profile), "--jobs", "60", "--load", "2", "--repetitions", "1", "--no-plots"),
        *("--results", str(directory), "--json", str(file)),
        temporary=temporary,
    )
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert "left out: wfq with none" in output
    figures = json.loads(file.read_text())["figures"]
    assert [figures[name] for name in ("cells", "timed_out", "unfinished", "lost", "recorded_twice")] == [3, 0, 0, 0, 0]

    found = read(directory)
    assert found.finished
    assert [row.name for row in found.cells] == [
        f"{cell}-uniform-2x-1" for cell in ("fifo-direct", "wfq-direct", "fifo-none")
    ]
    jobs = {job.number: job for job in profiles.load(str(profile)).workload("uniform", jobs=60, load=2.0).jobs}
    for row in found.cells:
        outcomes, letters = found.outcomes(row), found.dead_letters(row)
        assert sorted(one.number for one in outcomes) == sorted(jobs), "each job once"
        assert {one.number for one in outcomes if not one.completed} == {letter["number"] for letter in letters}
        assert letters
        assert {(letter["reason"], letter["attempts"]) for letter in letters} == {("worker_lost", 2)}
        assert {one.attempts for one in outcomes} == {1, 2}
        for one in outcomes:
            assert one.planned_us == jobs[one.number].at_us
            assert one.planned_us <= one.sent_us <= one.started_us < one.ended_us
            assert one.busy_us >= one.attempts * jobs[one.number].service_us
        at_once = sorted(
            (one.started_us, one.ended_us) for one in outcomes if one.tenant == "acme" and one.attempts == 1
        )
        assert all(ended <= began for (_, ended), (began, _) in pairwise(at_once)), "the ceiling of the profile holds"
    assert list(temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_cell_that_takes_too_long_is_marked_and_its_jobs_are_not_forgotten(temporary: Path, tmp_path: Path) -> None:
    directory = tmp_path / "results"
    process = command(
        *("bench", "run", "--scheduler", "lottery", "--dispatch", "scheduled", "--workload", "uniform"),
        *("--jobs", "100", "--load", "3", "--workers", "1", "--slots", "1", "--timeout", "1.5"),
        *("--results", str(directory), "--no-plots"),
        temporary=temporary,
    )
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 1, output
    assert "had not ended when its time was over, 0 were lost" in output
    [row] = read(directory).cells
    assert row.timed_out
    assert (0 < row.unfinished < 100, row.lost, row.recorded_twice) == (True, 0, 0)
    assert list(temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_matrix_that_is_stopped_keeps_the_cells_that_it_had(temporary: Path, tmp_path: Path) -> None:
    directory = tmp_path / "results"
    process = command(
        *("bench", "matrix", "--workload", "uniform", "--jobs", "40", "--results", str(directory), "--no-plots"),
        temporary=temporary,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "jobs ended, p50" in line:
            break
    process.send_signal(signal.SIGINT)
    with process:
        lines += process.stdout.readlines()
    assert process.returncode == 130, "".join(lines)
    assert any("the cells that were done are in" in line for line in lines)
    found = read(directory)
    assert (found.finished, len(found.outcomes(found.cells[0]))) == (False, 40)
    assert list(temporary.iterdir()) == []
    assert not _processes_of(temporary)


def _processes_of(directory: Path) -> list[str]:
    """Command lines of processes that name the directory, a moment after the end."""
    time.sleep(0.2)
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    return [line for line in listing.splitlines() if str(directory) in line]
