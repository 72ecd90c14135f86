"""`bench idle`: what it reads of a process, which project it measures, how it judges."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from queueapp.bench import cpu
from queueapp.bench.experiments import idle
from queueapp.bench.harness import Progress, Report


def test_processor_time_is_that_of_user_and_kernel_whatever_the_process_is_called(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a (worse) name) S {fields}\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert cpu.used_s(7, tmp_path) == (14 + 15) / ticks  # the fields 14 and 15 of proc(5) hold their own numbers


def test_where_the_system_does_not_tell_it_the_benchmark_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="measured on Linux"):
        cpu.used_s(7, tmp_path)


def test_what_is_measured_is_a_project_with_one_pool(tmp_path: Path) -> None:
    program = "import django; django.setup(); from queueapp.conf import known_pools; print(*known_pools())"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": idle.SETTINGS,
        "DUCTOR_GROUND": str(tmp_path),
        "REDIS_URL": "unix:///nowhere",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stdout.split() == ["default"], done.stderr


@pytest.mark.parametrize(("scheduler", "missed"), [(0.89, []), (0.9, ["take 1.00 % of a core; less than 1 %"])])
def test_it_judges_both_processes_together(scheduler: float, missed: list[str]) -> None:
    report = Report(bench="idle", run={})
    idle.judge(report, Progress(io.StringIO()), {"worker": 0.1, "scheduler": scheduler}, 62.0)
    assert report.figures["worker_cpu_pct"] == 0.1
    assert report.figures["cpu_pct"] == 0.1 + scheduler
    assert report.figures["commands_per_s"] == 62.0
    assert [part in text for part, text in zip(missed, report.missed, strict=True)] == [True] * len(missed)
