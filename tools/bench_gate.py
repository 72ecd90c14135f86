"""The gate of `make bench-gate`: is this tree slower than the main branch? Needs git and this tree, nothing else.

    --base REV       what to compare with (default: where this branch left main)
    --rounds N       pairs of measurements that count (default: 5); one more goes before them and is dropped
    --jobs N         jobs of one measurement (default: 20000)

The tree of the base is laid out under .bench/gate. Both are measured with the benchmarks of their own, in turn, the
order changing from pair to pair, by the same Python. A figure has lost more than a tenth when the median of the pairs'
ratios says so (what slows the whole machine for a while slows both sides of a pair), and the ratio of the best that
each side ever showed says so, too (what else runs on the machine only ever slows). Then as many pairs again are
measured, and all of them decide: what was chance is gone then, what was a loss is still there.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.environment import ROOT, environment_of, give_up, python_of, say
from tools.matrix import Outcome

GATE = ROOT / ".bench" / "gate"
MAINS = ("main", "origin/main")
LOSS = 0.10
HIGHER_IS_BETTER = {
    "enqueue_single_per_s": "enqueue one by one, jobs/s",
    "enqueue_bulk_per_s": "enqueue in bulk, jobs/s",
    "drain_per_s": "drain, jobs/s",
}
LOWER_IS_BETTER = {
    "start_ms_p50": "start in an idle worker, ms",
    "enqueue_server_us_per_job": "enqueue, server µs a job",
    "lease_server_us_per_job": "lease, server µs a job",
    "finish_server_us_per_job": "finish, server µs a job",
    "drain_server_us_per_job": "drain, server µs a job",
    "bytes_per_job": "memory of a waiting job, bytes",
}
BENCH_TIMEOUT_S = 600


class Pair(NamedTuple):
    """What was measured of both sides, one right after the other."""

    base: dict[str, float]
    change: dict[str, float]


class Verdict(NamedTuple):
    """One figure: the medians of both sides, and ratios, above 1 where the change is better."""

    name: str
    words: str
    base: float
    change: float
    ratio: float
    """The median of the pairs'."""
    best: float
    """That of the best of each side."""

    @property
    def lost(self) -> bool:
        return max(self.ratio, self.best) < 1 - LOSS


def run(environment: Path, words: Sequence[str]) -> list[Outcome]:
    """The whole gate: one outcome."""
    options = _options(words)
    begun = time.monotonic()
    base = find_base(options.base)
    if base is None:
        say("\n== bench-gate: this tree is the main branch as it is committed; --base REV compares it with another")
        return [Outcome("bench-gate", "nothing to compare", time.monotonic() - begun, False)]
    say(f"\n== bench-gate: this tree beside {base[:10]}, {options.rounds} pairs")
    tree = lay_out(base)
    pairs: list[Pair] = []
    measure(environment, tree, min(options.jobs, 5_000), 0)  # dropped
    for _ in range(2):
        for number in range(options.rounds):
            pairs.append(measure(environment, tree, options.jobs, number))
            say(f"  pair {len(pairs)} ({time.monotonic() - begun:.0f} s)")
        verdicts = judge(pairs)
        if not any(verdict.lost for verdict in verdicts):
            break
        if len(pairs) == options.rounds:
            slower = ", ".join(verdict.words for verdict in verdicts if verdict.lost)
            say(f"  Slower, it seems: {slower}. As many pairs again.")
    for line in table(verdicts):
        say(line)
    names = ", ".join(verdict.name for verdict in verdicts if verdict.lost)
    result = f"more than {LOSS:.0%} lost: {names}" if names else "passed"
    return [Outcome("bench-gate", result, time.monotonic() - begun, bool(names))]


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-gate", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--base", metavar="REV")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--jobs", type=int, default=20_000, metavar="N")
    options = parser.parse_args(list(words))
    if options.rounds < 1 or options.jobs < 1_000:
        parser.error("at least 1 round, and 1000 jobs")
    return options


# -- what it is compared with --------------------------------------------------------------------------------------


def find_base(wanted: str | None, root: Path = ROOT) -> str | None:
    """The commit to compare with; None when this tree is that commit, unchanged."""
    if wanted is not None:
        found = git(root, "rev-parse", "--verify", "--quiet", wanted + "^{commit}")
        if found is None:
            give_up(f"{wanted} is no commit here.")
    else:
        main = next((name for name in MAINS if git(root, "rev-parse", "--verify", "--quiet", name)), None)
        found = git(root, "merge-base", "HEAD", main) if main else None
        if found is None:
            give_up("There is no branch main here, or nothing in common with it. Name what to compare with: --base REV")
    changed = git(root, "status", "--porcelain")
    return None if not changed and git(root, "rev-parse", "HEAD") == found else found


def git(root: Path, *words: str) -> str | None:
    """What git says; None when it refuses."""
    answer = subprocess.run(["git", *words], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return answer.stdout.decode().strip() if answer.returncode == 0 else None


def lay_out(base: str, root: Path = ROOT, into: Path = GATE) -> Path:
    """The files of a commit, in a directory that git does not look at; no branch or worktree is made."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    (into.parent / ".gitignore").write_text("*\n")
    archive = subprocess.run(["git", "archive", "--format=tar", base], cwd=root, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        if hasattr(tarfile, "data_filter"):
            files.extractall(into, filter="data")
        else:
            files.extractall(into)
    return into


# -- measuring -----------------------------------------------------------------------------------------------------


def measure(environment: Path, tree: Path, jobs: int, number: int) -> Pair:
    """One pair; the base goes first in every other one."""
    sides = [tree, ROOT] if number % 2 == 0 else [ROOT, tree]
    found = {side: figures_of(environment, side, jobs) for side in sides}
    return Pair(found[tree], found[ROOT])


def figures_of(environment: Path, tree: Path, jobs: int) -> dict[str, float]:
    """The figures of one tree, by its own benchmarks; exit code 1 only says that it breaks a promise of its own."""
    benches = (
        ["throughput", "--jobs", str(jobs), "--starts", "200"],
        ["memory", "--jobs", str(jobs)],
    )
    variables = environment_of(environment)  # without PYTHONPATH: what lies beside manage.py is what is imported
    figures: dict[str, float] = {}
    for words in benches:
        with tempfile.TemporaryDirectory(prefix="ductor-gate-") as directory:
            file = Path(directory) / "figures.json"
            command = [str(python_of(environment)), "manage.py", "bench", *words, "--json", str(file)]
            answer = subprocess.run(
                command,
                cwd=tree,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=BENCH_TIMEOUT_S,
            )
            if not file.exists():
                said = answer.stdout.decode(errors="replace").strip()[-1_500:]
                give_up(f"bench {words[0]} of {os.path.relpath(tree, ROOT)} failed:\n{said}")
            figures.update(json.loads(file.read_text())["figures"])
    return figures


# -- judging -------------------------------------------------------------------------------------------------------


def judge(pairs: Sequence[Pair]) -> list[Verdict]:
    """Every figure that both sides have in each pair. A figure that only one of them knows says nothing."""
    verdicts = []
    for name, words in [*HIGHER_IS_BETTER.items(), *LOWER_IS_BETTER.items()]:
        both = [(pair.base.get(name), pair.change.get(name)) for pair in pairs]
        values = [(base, change) for base, change in both if base and change]
        if len(values) < len(pairs):
            continue
        higher = name in HIGHER_IS_BETTER
        gains = [change / base if higher else base / change for base, change in values]
        bases, changes = [base for base, _ in values], [change for _, change in values]
        best = max(changes) / max(bases) if higher else min(bases) / min(changes)
        verdicts.append(
            Verdict(
                name,
                words,
                statistics.median(bases),
                statistics.median(changes),
                statistics.median(gains),
                best,
            )
        )
    if not verdicts:
        give_up("The two trees have no figure in common.")
    return verdicts


def table(verdicts: Sequence[Verdict]) -> list[str]:
    lines = [f"  {'':<32} {'main':>12} {'this tree':>12}   ratio   best"]
    for one in verdicts:
        word = "LOST" if one.lost else ""
        figures = f"{one.base:>12,.1f} {one.change:>12,.1f}   {one.ratio:5.2f}  {one.best:5.2f}"
        lines.append(f"  {one.words:<32} {figures}  {word}".rstrip())
    return lines
