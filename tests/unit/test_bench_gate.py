"""`make bench-gate`: what it compares with what, what it makes of the figures, when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import bench_gate, setup
from tools.bench_gate import Pair, find_base, judge, lay_out, table

NOBODY = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false"]


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *NOBODY, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """On main, one commit, nothing changed."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "first")
    return root


def commit(root: Path, text: str) -> str:
    (root / "speed.py").write_text(text)
    git(root, "add", "speed.py")
    git(root, "commit", "--quiet", "-m", text)
    return git(root, "rev-parse", "HEAD")


def test_main_as_it_is_committed_has_nothing_to_be_compared_with(repository: Path) -> None:
    assert find_base(None, repository) is None


def test_changes_on_main_are_compared_with_its_last_commit(repository: Path) -> None:
    (repository / "speed.py").write_text("changed")
    assert find_base(None, repository) == git(repository, "rev-parse", "HEAD")


def test_a_branch_is_compared_with_where_it_left_main(repository: Path) -> None:
    left = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "faster")
    commit(repository, "faster")
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "others go on")
    git(repository, "checkout", "--quiet", "faster")
    assert find_base(None, repository) == left


def test_any_commit_can_be_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "second")
    assert find_base("HEAD~1", repository) == first
    assert find_base("HEAD", repository) is None
    with pytest.raises(SystemExit):
        find_base("nowhere", repository)
    assert capsys.readouterr().err == "nowhere is no commit here.\n"


def test_without_main_a_base_has_to_be_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "branch", "--quiet", "-m", "trunk")
    with pytest.raises(SystemExit):
        find_base(None, repository)
    assert "--base REV" in capsys.readouterr().err
    assert find_base("trunk", repository) is None


def test_the_files_of_the_base_are_laid_out_and_git_has_nothing_new(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "second")
    into = repository / ".bench" / "gate"
    for _ in range(2):
        assert lay_out(first, repository, into) == into
        assert (into / "speed.py").read_text() == "first"
        (into / "left over").touch()
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "worktree", "list", "--porcelain").count("worktree ") == 1


def pair(base: float, change: float, name: str = "drain_per_s") -> Pair:
    return Pair({name: base}, {name: change})


@pytest.mark.parametrize(
    ("name", "change", "lost"),
    [
        ("drain_per_s", 90.0, False),
        ("drain_per_s", 89.9, True),
        ("drain_per_s", 500.0, False),
        ("start_ms_p50", 111.0, False),
        ("start_ms_p50", 111.2, True),
        ("start_ms_p50", 10.0, False),
    ],
)
def test_a_loss_of_more_than_a_tenth_is_one(name: str, change: float, lost: bool) -> None:
    [verdict] = judge([pair(100.0, change, name)])
    assert verdict.lost is lost


def test_pairs_are_compared_each_in_itself() -> None:
    """The machine was twice as fast in the second pair, and slow for one side of the third."""
    [verdict] = judge([pair(100, 95), pair(200, 190), pair(100, 20)])
    assert (verdict.ratio, verdict.best) == (0.95, 0.95)
    assert not verdict.lost


def test_a_loss_shows_in_the_middle_and_at_best() -> None:
    """Only in the middle: something else slowed one side. Only at best: one pair had luck."""
    assert not judge([pair(100, 80), pair(100, 80), pair(100, 99)])[0].lost
    assert not judge([pair(100, 99), pair(100, 99), pair(150, 100)])[0].lost
    assert judge([pair(100, 80), pair(100, 80), pair(110, 89)])[0].lost
    assert judge([pair(100, 130, "start_ms_p50"), pair(100, 130, "start_ms_p50"), pair(90, 101, "start_ms_p50")])[
        0
    ].lost


def test_a_figure_that_one_side_does_not_know_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    both = Pair({"drain_per_s": 10.0, "bytes_per_job": 300.0}, {"drain_per_s": 10.0, "start_ms_p50": 1.0})
    assert [verdict.name for verdict in judge([both])] == ["drain_per_s"]
    assert [verdict.name for verdict in judge([both, pair(1, 1), pair(1, 1)])] == ["drain_per_s"]
    some = Pair({"drain_per_s": 10.0, "bytes_per_job": 300.0}, {"drain_per_s": 10.0, "bytes_per_job": 900.0})
    assert [verdict.name for verdict in judge([some, pair(1, 1)])] == ["drain_per_s"], "it was not seen in every pair"
    with pytest.raises(SystemExit):
        judge([Pair({"drain_per_s": 10.0}, {})])
    assert "no figure in common" in capsys.readouterr().err


def test_the_table_says_what_was_lost() -> None:
    base, change = {"drain_per_s": 100.0, "bytes_per_job": 100.0}, {"drain_per_s": 110.0, "bytes_per_job": 125.0}
    heading, kept, lost = table(judge([Pair(base, change)]))
    assert heading.split() == ["main", "this", "tree", "ratio", "best"]
    assert kept.split()[-4:] == ["100.0", "110.0", "1.10", "1.10"]
    assert lost.split()[-3:] == ["0.80", "0.80", "LOST"]


# -- the gate as a whole -------------------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Pair]:
    """What is measured, pair after pair; the first one is dropped."""
    pairs: list[Pair] = []
    monkeypatch.setattr(bench_gate, "find_base", lambda wanted: "0123456789abcdef")
    monkeypatch.setattr(bench_gate, "lay_out", lambda base: tmp_path)
    monkeypatch.setattr(bench_gate, "measure", lambda environment, tree, jobs, number: pairs.pop(0))
    return pairs


def test_it_passes_when_nothing_is_lost(measured: list[Pair], capsys: pytest.CaptureFixture[str]) -> None:
    measured += [pair(1, 0.1), pair(100, 95), pair(100, 99)]
    [outcome] = bench_gate.run(Path("x"), ["--rounds", "2"])
    assert (outcome.result, outcome.failed, measured) == ("passed", False, [])
    assert "0.97" in capsys.readouterr().out


def test_a_loss_that_was_chance_is_gone_in_as_many_pairs_again(measured: list[Pair]) -> None:
    measured += [pair(1, 1), pair(100, 80), pair(100, 99)]
    [outcome] = bench_gate.run(Path("x"), ["--rounds", "1"])
    assert (outcome.result, outcome.failed) == ("passed", False)


def test_it_fails_on_a_loss_that_stays(measured: list[Pair], capsys: pytest.CaptureFixture[str]) -> None:
    measured += [pair(1, 1), *[pair(100, 80)] * 4]
    [outcome] = bench_gate.run(Path("x"), ["--rounds", "2"])
    assert (outcome.result, outcome.failed) == ("more than 10% lost: drain_per_s", True)
    assert "Slower, it seems: drain, jobs/s. As many pairs again." in capsys.readouterr().out
    assert measured == []


def test_nothing_to_compare_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gate, "find_base", lambda wanted: None)
    [outcome] = bench_gate.run(Path("x"), [])
    assert (outcome.result, outcome.failed) == ("nothing to compare", False)


def test_the_sides_take_turns_in_being_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order = []

    def figures(environment: Path, tree: Path, jobs: int) -> dict[str, float]:
        order.append("base" if tree == tmp_path else "change")
        return {"drain_per_s": 1.0 if tree == tmp_path else 2.0}

    monkeypatch.setattr(bench_gate, "figures_of", figures)
    for number in range(2):
        assert bench_gate.measure(Path("x"), tmp_path, 1_000, number) == pair(1, 2)
    assert order == ["base", "change", "change", "base"]


def test_each_tree_is_measured_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tree of a few lines stands for a whole one: its bench tells what it imports, and breaks a promise."""
    monkeypatch.setattr(bench_gate, "python_of", lambda environment: Path(sys.executable))
    (tmp_path / "queueapp.py").write_text("SPEED = 7\n")
    (tmp_path / "manage.py").write_text(
        "import json, sys, queueapp\n"
        "bench, file = sys.argv[2], sys.argv[-1]\n"
        "open(file, 'w').write(json.dumps({'figures': {bench: queueapp.SPEED}}))\n"
        "raise SystemExit(1)\n"
    )
    assert bench_gate.figures_of(tmp_path / "environment", tmp_path, 1_000) == {"throughput": 7, "memory": 7}

    (tmp_path / "manage.py").write_text("print('no such bench')\n")
    with pytest.raises(SystemExit):
        bench_gate.figures_of(tmp_path / "environment", tmp_path, 1_000)
    assert "no such bench" in capsys.readouterr().err


def test_figures_that_are_judged_are_told_by_the_benchmarks() -> None:
    """A figure that is called otherwise would be looked at no more, without a word."""
    root = Path(__file__).resolve().parents[2] / "queueapp" / "bench" / "experiments"
    text = (root / "throughput.py").read_text() + (root / "memory.py").read_text()
    for name in {**bench_gate.HIGHER_IS_BETTER, **bench_gate.LOWER_IS_BETTER}:
        part, _, rest = name.partition("_")
        forms = {name, "{part}_" + rest, name.replace("single", "{how}"), name.replace("bulk", "{how}")}
        assert any(form in text for form in forms), (part, name)


def test_make_knows_it() -> None:
    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text()
    for verb in setup.VERBS:
        assert f" {verb}" in makefile
    assert "bench-gate" in setup.VERBS
    assert "bench-gate" in (setup.__doc__ or "")
