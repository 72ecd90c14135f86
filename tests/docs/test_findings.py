"""The commands of docs/findings.md are ones that run, and its trace is one."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from django.core.management import load_command_class

from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.experiments.simulation_plan import Plan
from queueapp.bench.workloads.traces import read

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()
COMMANDS = re.findall(r"^manage\.py bench (simulate .*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("shown", COMMANDS)
def test_every_command_asks_for_something_that_can_be_simulated(shown: str) -> None:
    parser = load_command_class("queueapp", "bench").create_parser("manage.py", "bench")
    given = vars(parser.parse_args(shlex.split(shown)))
    plan = Plan(**{option.key: given[option.key] for option in EXPERIMENTS["simulate"].options})
    assert plan.policies
    assert plan.scenarios()
    assert plan.filled()[0].run.jobs >= 4_000


def test_every_section_but_the_method_shows_how_to_repeat_it() -> None:
    assert len(COMMANDS) > 10
    _, method, *findings = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    assert method.startswith("Method\n"), "how it was measured comes before what came out"
    for section in findings:
        assert re.search(r"^manage\.py bench (simulate|matrix|sweep) ", section, re.MULTILINE)


def test_the_trace_on_the_page_is_one(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    made, file = io.StringIO(), tmp_path / "rare.jsonl"
    with redirect_stdout(made):
        exec(code, {})
    file.write_text(made.getvalue())
    found = read(file, seed=1, slots=16)
    assert (len(found.jobs), found.big, len(found.tenants)) == (4_009, None, 21)


def test_the_page_is_found_from_others() -> None:
    assert "](docs/findings.md)" in (ROOT / "README.md").read_text()
    assert "](findings.md)" in (ROOT / "docs" / "benchmarks.md").read_text()
