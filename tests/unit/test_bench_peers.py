"""`bench throughput --peers` without any peer: whom, where they are installed, and how, on a queue of a few lines."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command, load_command_class

from queueapp.bench.command import BenchCommand
from queueapp.bench.experiments import peers
from queueapp.bench.harness import Progress, Report
from queueapp.bench.peers import environments, measuring, roster
from queueapp.bench.peers.drivers import marks
from queueapp.bench.peers.environments import Environment, Unavailable
from queueapp.bench.peers.measuring import Measurement, NotMeasured, Starts, persist
from queueapp.bench.peers.results import Results
from queueapp.bench.peers.roster import OURS, PEERS, Peer
from queueapp.store.embedded import EmbeddedServer

TOY = Peer(name="toy", title="Toy", requirements=("toy",), variants={"lives": "one process"}, chunk=50)


class ToyEnvironment(Environment):
    """Runs the toy's driver with this Python."""

    def __init__(self, peer: Peer = TOY, **more: str) -> None:
        super().__init__(peer, Path())
        self.more = more

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("toy_driver.py")), *words]

    def variables(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(roster.DRIVERS), **self.more}

    def version(self) -> str | None:
        return "1.0"


@pytest.fixture
def server(own_server: Callable[..., EmbeddedServer]) -> EmbeddedServer:
    return own_server()


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        yield client


@pytest.fixture
def measure(server: EmbeddedServer, client: redis.Redis, tmp_path: Path) -> Callable[..., Measurement]:
    def make(peer: Peer = TOY, **more: str) -> Measurement:
        return Measurement(ToyEnvironment(peer, **more), client, server.url, tmp_path)

    return make


# -- who is measured -----------------------------------------------------------------------------------------------


def test_every_peer_has_a_driver_of_its_own_and_names_what_it_needs() -> None:
    for peer in PEERS.values():
        assert peer.driver.is_file()
        assert bool(peer.requirements) == (peer.name != OURS)
        assert peer.variants
    assert [peer.package for name, peer in PEERS.items() if name != OURS] == [
        *("celery", "rq", "dramatiq", "huey", "taskiq", "streaq", "bullmq")
    ]
    drivers = {path.name for path in roster.DRIVERS.glob("*_driver.*")}
    assert drivers == {peer.driver.name for peer in PEERS.values()}


def test_peers_are_no_dependencies_of_ours() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    wanted = [peer.package for name, peer in PEERS.items() if name != OURS]
    assert [name for name in wanted if f'"{name}' in text] == []


def test_ductor_is_always_among_those_that_are_measured() -> None:
    assert [peer.name for peer in roster.chosen("huey, bullmq")] == [OURS, "huey", "bullmq"]
    assert [peer.name for peer in roster.chosen("all")] == list(PEERS)
    with pytest.raises(ValueError, match="sidekiq is no peer; known are celery, rq"):
        roster.chosen("huey,sidekiq")
    with pytest.raises(ValueError, match="Nobody is no peer"):
        roster.chosen(",")


def test_the_command_takes_all_peers_or_those_named() -> None:
    parser = load_command_class("queueapp", "bench").create_parser("manage.py", "bench")
    for words, wanted in (([], None), (["--peers"], "all"), (["--peers", "huey"], "huey")):
        assert parser.parse_args(["throughput", *words]).peers == wanted
    with pytest.raises(CommandError, match="sidekiq is no peer"):
        call_command("bench", "throughput", "--peers", "sidekiq")


def test_the_command_starts_itself_again_with_its_flags() -> None:
    options = {"jobs": 500, "peers": "huey", "prepare": True, "aof": "on"}
    words = BenchCommand(bench="throughput", options=options).arguments()
    assert words == ["ductor_bench", "throughput", "--jobs", "500", "--peers", "huey", "--prepare", "--aof", "on"]
    words = BenchCommand(bench="throughput", options={**options, "peers": None, "prepare": False}).arguments()
    assert words == ["ductor_bench", "throughput", "--jobs", "500", "--aof", "on"]


# -- environments --------------------------------------------------------------------------------------------------


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, progress = tmp_path / ".bench", Progress(io.StringIO())
    made = []

    def install(peer: Peer, directory: Path) -> list[list[str]]:
        made.append(peer.name)
        return [[sys.executable, "-c", f"open({str(directory / 'here')!r}, 'w').close()"]]

    monkeypatch.setattr(environments, "installation", install)
    monkeypatch.setattr(Environment, "version", lambda self: "1.0")
    for _ in range(2):
        environments.prepare(TOY, root, progress)
    assert (root / "toy" / "here").exists()
    assert (root / ".gitignore").read_text() == "*\n"
    assert made == ["toy"]

    environments.prepare(Peer(name="toy", title="Toy", requirements=("toy==2",), variants={}), root, progress)
    assert made == ["toy", "toy"], "other requirements make it anew"


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [sys.executable, "-c", "print('looking'); print('ERROR: no such thing'); print('bye'); raise SystemExit(1)"]
    monkeypatch.setattr(environments, "installation", lambda peer, directory: [fails])
    with pytest.raises(Unavailable, match=r"failed \(toy\.log\): ERROR: no such thing"):
        environments.prepare(TOY, tmp_path, Progress(io.StringIO()))
    assert not (tmp_path / "toy").exists(), "half an environment is none"


def test_a_missing_program_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="node is not installed"):
        environments.installation(PEERS["bullmq"], tmp_path)
    monkeypatch.setattr(environments, "installation", lambda peer, directory: [["no-such-program-here"]])
    with pytest.raises(Unavailable, match="no-such-program-here"):
        environments.prepare(TOY, tmp_path, Progress(io.StringIO()))


def test_a_peer_sees_nothing_of_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DJANGO_SETTINGS_MODULE", "REDIS_URL", "PYTHONPATH"):
        monkeypatch.setenv(name, "ours")
    theirs = Environment(PEERS["celery"], Path("/x")).variables()
    assert not {"DJANGO_SETTINGS_MODULE", "REDIS_URL", "PYTHONPATH"} & theirs.keys()
    assert Environment(PEERS[OURS], Path("/x")).variables()["REDIS_URL"] == "ours"


# -- measuring -----------------------------------------------------------------------------------------------------


def test_each_figure_is_measured_on_an_empty_server(measure: Callable[..., Measurement], client: redis.Redis) -> None:
    toy = measure()
    client.rpush("toy", "left over")
    assert (toy.enqueue_per_s("single", 120) or 0) > 0
    assert client.llen("toy") == 120 + marks.WARM_UP
    assert (toy.enqueue_per_s("bulk", 120) or 0) > 0
    assert client.llen("toy") == 120 + marks.WARM_UP
    assert toy.drain_per_s("lives", 200, 0) > 0
    assert client.llen("toy") == 0
    assert toy.drain_per_s("lives", 100, 1, workers=2) > 0
    starts = toy.starts("lives", 5)
    assert 0 <= starts.p50 <= starts.p99
    assert starts.p50 <= starts.call_p50
    assert toy.bytes_per_job(2_000) >= 96


def test_what_a_peer_has_no_call_for_is_left_out(measure: Callable[..., Measurement]) -> None:
    toy = measure(TOY="single")
    assert toy.enqueue_per_s("bulk", 100) is None
    assert toy.drain_per_s("lives", 100, 0) > 0, "it is filled one by one"


def test_what_went_wrong_is_told_in_the_words_of_the_peer(
    measure: Callable[..., Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotMeasured, match="single 10: toy: broken"):
        measure(TOY="broken").enqueue_per_s("single", 10)
    with pytest.raises(NotMeasured, match="its worker ended: toy: no server would have me"):
        measure().drain_per_s("dies", 10, 0)
    monkeypatch.setattr(measuring, "DRAIN_TIMEOUT_S", 0.2)
    with pytest.raises(NotMeasured, match="did not begin"):
        measure().drain_per_s("lives", 10, 60_000)


def test_the_append_only_file_is_turned_on_and_off(client: redis.Redis) -> None:
    for on in (True, False, True):
        persist(client, on=on)
        found: Any = client.info("persistence")
        assert (found["aof_enabled"], found["aof_rewrite_in_progress"]) == (int(on), 0)


def test_a_job_of_the_warm_up_leaves_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = memoryview(bytearray(16)).cast("d")
    monkeypatch.setattr(marks, "_cells", cells)
    marks.body(marks.NO_MARK, 0)
    assert cells.tolist() == [0, 0]
    marks.body(0, 0)
    assert (cells[0] > 0, cells[1]) == (True, 0)


def test_a_rate_counts_from_the_first_twentieth() -> None:
    began = [0.0, 0.1, 50.0, *(60 + 0.5 * number for number in range(37))]  # it had to start up
    assert len(began) == 40
    assert measuring.rate(began) == pytest.approx(37 / (began[-1] - 50.0))


def test_a_start_counts_from_the_return_of_the_call_and_is_never_negative() -> None:
    found = measuring.latencies([(1.0, 1.002), (2.0, 2.002), (3.0, 3.002)], [1.003, 2.001, 3.004])
    assert found.p50 == pytest.approx(1.0)
    assert found.call_p50 == pytest.approx(3.0)


# -- rounds --------------------------------------------------------------------------------------------------------


def test_arms_take_turns_in_changing_order_and_the_first_round_is_dropped() -> None:
    other = Peer(name="other", title="Other", requirements=("other",), variants={"x": "x"})
    arms = [peers._Arm(Measurement(ToyEnvironment(peer), None, "", Path()), "lives") for peer in (TOY, other)]  # type: ignore[arg-type]  # nothing is measured
    arms[1].variant = "x"
    seen: list[tuple[str, int]] = []

    def measure(arm: peers._Arm) -> Mapping[str, float]:
        seen.append((arm.peer.name, arm.jobs))
        return {"drain_per_s": {1: 10.0, 3: 1_000.0}.get(len(seen), 2_000.0)}

    results = Results(aof="on", peers=[TOY], versions={}, unavailable={})
    peers._rounds(results, "drain", arms, measure, Progress(io.StringIO()), rounds=3, seconds=1.0)
    assert [name for name, _ in seen] == ["toy", "other", "other", "toy", "toy", "other"]
    assert [jobs for name, jobs in seen if name == "toy"] == [400, 100, 2_000]
    assert results._found["toy", "lives"] == {"drain_per_s": 2_000.0}, "without the first round's 10"
    assert results._found["other", "x"] == {"drain_per_s": 1_500.0}


def test_an_arm_that_fails_is_out_and_has_no_figure() -> None:
    arm = peers._Arm(Measurement(ToyEnvironment(), None, "", Path()), "lives")  # type: ignore[arg-type]  # nothing is measured
    calls = []

    def measure(arm: peers._Arm) -> Mapping[str, float]:
        calls.append(arm)
        if len(calls) == 2:
            raise NotMeasured("it fell over")
        return {"drain_per_s": 1.0}

    results = Results(aof="on", peers=[TOY], versions={}, unavailable={})
    peers._rounds(results, "drain, no-op", [arm], measure, Progress(io.StringIO()), rounds=4, seconds=1.0)
    assert len(calls) == 2
    assert results._failed == {"toy": {"drain, no-op": "it fell over"}}
    assert results._found == {}


@pytest.mark.parametrize(
    ("before", "per_s", "after"), [(400, 1_000, 2_000), (400, 9_999, 8_000), (90_000, 90_000, 100_000), (400, 20, 100)]
)
def test_an_arm_gets_jobs_for_some_seconds(before: int, per_s: float, after: int) -> None:
    assert peers.next_jobs(before, {"drain_per_s": per_s}, 2.0) == after
    assert peers.next_jobs(before, {"start_ms_p50": 1.0}, 2.0) == before


class Known:
    """A measurement whose figures are known beforehand."""

    def __init__(self, environment: Environment, client: redis.Redis, url: str, directory: Path) -> None:
        self.peer = environment.peer
        self.client = client
        self.factor = 2.0 if self.peer.name == OURS else 1.0

    def enqueue_per_s(self, how: str, count: int) -> float | None:
        return 1_000 * self.factor if how == "single" or self.peer.name == OURS else None

    def drain_per_s(self, variant: str, count: int, ms: int, *, workers: int = 1, body: str = "") -> float:
        found: Any = self.client.info("persistence")
        return (100 if found["aof_enabled"] else 200) * self.factor * workers * (1.5 if body else 1)

    def starts(self, variant: str, count: int) -> Starts:
        return Starts(p50=1.0, p99=2.0, call_p50=3.0)

    def bytes_per_job(self, count: int) -> float:
        return 300.0


def test_the_whole_run_tells_rows_figures_and_who_is_missing(
    server: EmbeddedServer, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(peer: Peer, root: Path, progress: Progress) -> Environment:
        if peer.name == "rq":
            raise Unavailable("there is none here")
        return ToyEnvironment(peer)

    monkeypatch.setenv("REDIS_URL", server.url)
    monkeypatch.setattr(peers, "prepare", prepare)
    monkeypatch.setattr(peers, "Measurement", Known)
    report, out = Report(bench="throughput", run={"ductor": "0.1"}), io.StringIO()
    plan = peers.Plan(peers="rq,celery", aof="both", rounds=2, seconds=0.1)
    peers.run(report, client, Progress(out), tmp_path, plan)

    three = (OURS, "celery", "rq")
    assert [(row["peer"], row["aof"]) for row in report.rows] == [
        (name, aof) for aof in ("on", "off") for name in three
    ]
    ours, celery, rq, ours_off, *_ = report.rows
    assert rq["not_measured"] == {"everything": "there is none here"}
    assert celery["not_measured"] == {"enqueue, in bulk": "it has no such call"}
    assert (ours["drain_per_s"], ours["drain_two_workers_per_s"], ours_off["drain_per_s"]) == (200, 400, 400)
    assert ours["drain_async_per_s"] == 300
    assert not {"drain_two_workers_per_s", "drain_async_per_s"} & celery.keys()
    assert celery["variants"].keys() == {"threads", "processes"}
    assert report.figures["ratio_drain_best_python"] == report.figures["ratio_drain_best_python_aof_off"] == 2
    assert (report.figures["drain_per_s"], report.figures["drain_per_s_aof_off"]) == (200, 400)
    assert report.figures["ratio_drain_bullmq"] is None
    assert report.figures["start_ms_p99"] == 2
    assert "Drain, no-op, best in Python (beside Celery): 2.00x; at least 8.00x is wanted." in report.missed
    assert "Drain, no-op: 200/s; at least 10,000/s is wanted." in report.missed
    assert "Drain, no-op: 400/s; at least 10,000/s is wanted." not in report.missed, "the first persistence is judged"
    assert "RQ, not measured: everything: there is none here" in out.getvalue()
    found: Any = client.info("persistence")
    assert found["aof_enabled"] == 1
    report.write(tmp_path / "figures.json")
    assert len(json.loads((tmp_path / "figures.json").read_text())["rows"]) == 6


def test_only_environments_are_made_when_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "prepare", lambda peer, root, progress: ToyEnvironment(peer))
    report, out = Report(bench="throughput", run={}), io.StringIO()
    nobody: Any = None
    peers.run(report, nobody, Progress(out), tmp_path, peers.Plan(peers="huey", prepare=True))
    assert out.getvalue() == "  Huey 1.0 is ready\n"
    assert report.figures == {}
