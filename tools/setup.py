"""Everything behind `make`: finds a Python, makes `.venv`, installs, runs. Needs only Python 3.8 or later to start.

    make setup      the environment alone
    make demo       the main job, with real processes
    make test       unit, Lua, model and integration tests against a real server
    make test-all   the matrix of versions, databases and servers; packages, browser; faults and long properties
    make test-long  thousands of examples for each policy, by hand: an hour or more
    make test-soak  half an hour of random kills, freezes, cuts and restarts; DUCTOR_SOAK_SEED plays one again
    make check      ruff, mypy, import-linter, migrations, Django's checks
    make bench-quick  five policies under four workloads with real processes, and plots: results/quick-…; four minutes
    make bench-gate this tree beside the main branch: fails where a tenth is lost; some minutes on a quiet machine

DUCTOR_PYTHON names the interpreter to use (a path, or a version such as 3.12). Words after the verb, or ARGS="..." with
make, go on to the program that the verb runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import bench_gate, matrix
from tools.environment import ROOT, ensure, environment_of, python_of, say
from tools.matrix import Outcome

MAIN = ROOT / ".venv"
CHECKS = (
    ("ruff check", ["-m", "ruff", "check", "."]),
    ("ruff format", ["-m", "ruff", "format", "--check", "."]),
    ("mypy", ["-m", "mypy"]),
    ("import-linter", ["-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-logo"]),
    ("migrations", ["manage.py", "makemigrations", "--check", "--dry-run"]),
    ("django check", ["manage.py", "check", "--fail-level", "WARNING"]),
)
QUICK = (
    *("--scheduler", "fifo,priority,edf,wfq,tiered"),
    *("--workload", "uniform,bursty,heavy_tailed,multi_tenant"),
    *("--profile", "quick", "--dispatch", "direct", "--repetitions", "1"),
)


def run(*arguments: str) -> int:
    """Run the main environment's Python; Ctrl-C is the program's own business, and we wait for its end."""
    process = subprocess.Popen([str(python_of(MAIN)), *arguments], cwd=ROOT, env=environment_of(MAIN))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def setup() -> None:
    say("Environment: .venv")
    seconds = ensure(MAIN, None)
    say(f"  ready ({seconds:.1f} s)")


def check(arguments: list[str]) -> list[Outcome]:
    outcomes = []
    for name, command in CHECKS:
        say(f"\n== {name}")
        begun = time.monotonic()
        code = run(*command)
        outcomes.append(Outcome(name, "passed" if code == 0 else "failed", time.monotonic() - begun, code != 0))
    return outcomes


def demo(arguments: list[str]) -> list[Outcome]:
    say("\n== demo: manage.py demo")
    begun = time.monotonic()
    code = run("manage.py", "demo", *arguments)
    return [Outcome("demo", "passed" if code == 0 else f"failed (exit {code})", time.monotonic() - begun, code != 0)]


def test(arguments: list[str]) -> list[Outcome]:
    say("\n== tests: pytest, two processes, each with a server of its own")
    begun = time.monotonic()
    code = matrix.pytest(MAIN, matrix.USUAL, *arguments)
    return [Outcome("tests", "passed" if code == 0 else f"failed (exit {code})", time.monotonic() - begun, code != 0)]


def test_all(arguments: list[str]) -> list[Outcome]:
    return matrix.run_all(MAIN)


def test_long(arguments: list[str]) -> list[Outcome]:
    say("\n== thorough tests: pytest, two processes, each with a server of its own")
    begun = time.monotonic()
    code = matrix.pytest(MAIN, "thorough", "--timeout=3600", *arguments)
    return [
        Outcome("thorough", "passed" if code == 0 else f"failed (exit {code})", time.monotonic() - begun, code != 0)
    ]


def test_soak(arguments: list[str]) -> list[Outcome]:
    say("\n== soak: random faults, and the sums at the end")
    begun = time.monotonic()
    seconds = os.environ.get("DUCTOR_SOAK_SECONDS", "1800")
    words = ["tests/faults/test_soak.py", "-rP", *arguments]
    code = matrix.pytest(MAIN, "faults", *words, variables={"DUCTOR_SOAK_SECONDS": seconds})
    return [Outcome("soak", "passed" if code == 0 else f"failed (exit {code})", time.monotonic() - begun, code != 0)]


def quick(arguments: list[str]) -> list[Outcome]:
    say("\n== bench-quick: manage.py bench matrix")
    begun = time.monotonic()
    results = f"results/quick-{time.strftime('%Y%m%d-%H%M%S')}"
    words = [*QUICK, "--results", results, *arguments]
    code = run("manage.py", "bench", "matrix", *words)
    told = "passed" if code == 0 else f"failed (exit {code})"
    return [Outcome("bench-quick", told, time.monotonic() - begun, code != 0)]


def gate(arguments: list[str]) -> list[Outcome]:
    return bench_gate.run(MAIN, arguments)


VERBS = {
    "setup": None,
    "demo": demo,
    "test": test,
    "test-all": test_all,
    "test-long": test_long,
    "test-soak": test_soak,
    "check": check,
    "bench-quick": quick,
    "bench-gate": gate,
}


def summary(outcomes: list[Outcome], seconds: float) -> None:
    say("\nSummary")
    width = max((len(outcome.cell) for outcome in outcomes), default=0)
    for outcome in outcomes:
        took = f"{outcome.seconds:6.1f} s" if outcome.seconds else " " * 8
        say(f"  {outcome.cell:<{width}}  {took}  {outcome.result}")
    failed = sum(outcome.failed for outcome in outcomes)
    say(f"  {f'{failed} of {len(outcomes)} failed' if failed else 'all well'}, {seconds:.1f} s with set-up")


def main(words: list[str]) -> int:
    verb, arguments = (words[0], words[1:]) if words else ("", [])
    if verb not in VERBS:
        say((__doc__ or "").strip())
        return 0 if verb in ("", "help", "-h", "--help") else 2
    begun = time.monotonic()
    setup()
    action = VERBS[verb]
    if action is None:
        say("\nNext: make demo, make test, or .venv/bin/python manage.py help")
        return 0
    outcomes = action(arguments)
    summary(outcomes, time.monotonic() - begun)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
