"""What a supervisor does with its workers: started, replaced, told, killed. The processes are stand-ins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from queueapp.cli import supervisor
from queueapp.cli.supervisor import Supervisor, SupervisorCommand, Verdict, after
from queueapp.management.commands.worker import passed_on

COMMAND = SupervisorCommand(processes=2, name="box", grace_s=25.0, arguments=["--slots", "3"])


class FakeProcess:
    """Runs until it is told to end, or a test ends it. `stubborn` many signals are ignored."""

    def __init__(self, name: str, arguments: Sequence[str], died: SimpleQueue[object]) -> None:
        self.name, self.arguments, self._died = name, list(arguments), died
        self.restart_at: float | None = None
        self.running = self.up = False
        self.exit_code: int | None = None
        self.starts, self.told = 0, [0]
        self.stubborn, self.due = 0, 0.0
        self.code_of_stop = 0
        self.pauses: list[bool] = []

    def start(self) -> None:
        self.restart_at, self.exit_code = None, None
        self.starts += 1
        self.running = self.up = True

    def end(self, code: int, *, up: bool = True) -> None:
        self.exit_code, self.up, self.running = code, up, False
        self._died.put(self)

    def schedule_restart(self, *, at_once: bool = False) -> float:
        self.pauses.append(at_once)
        self.restart_at = self.due
        return 0.0 if at_once else 1.0

    def terminate(self) -> None:
        self.told[0] += 1
        if self.running and self.told[0] > self.stubborn:
            self.end(self.code_of_stop)

    def kill(self) -> None:
        if self.running:
            self.end(-9)


class Crew:
    """A supervisor in a thread of its own, and its processes by name."""

    def __init__(self, command: SupervisorCommand = COMMAND, clock: Callable[[], float] | None = None) -> None:
        self.processes: dict[str, FakeProcess] = {}
        self.code: int | None = None
        self.supervisor = Supervisor(command, self._make, **({"clock": clock} if clock else {}))
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _make(
        self, name: str, arguments: Sequence[str], died: SimpleQueue[object], environment: Mapping[str, str] | None
    ) -> FakeProcess:
        made = self.processes[name] = FakeProcess(name, arguments, died)
        return made

    def _run(self) -> None:
        self.code = self.supervisor.run()

    def start(self) -> Crew:
        self.thread.start()
        until(lambda: len(self.processes) and all(each.starts for each in self.processes.values()))
        return self

    def join(self) -> int | None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self.code


def until(condition: Callable[[], Any]) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if condition():
            return
        waiting.wait(0.005)
    pytest.fail("it did not happen")


@pytest.mark.parametrize(
    ("code", "came_up", "anyone_up", "batch", "verdict"),
    [
        (0, True, True, False, Verdict.AT_ONCE),
        (0, True, True, True, Verdict.DONE),
        (0, False, True, True, Verdict.PAUSE),
        (5, True, True, False, Verdict.AT_ONCE),
        (6, True, True, True, Verdict.AT_ONCE),
        (4, True, True, False, Verdict.PAUSE),
        (-9, True, True, False, Verdict.PAUSE),
        (-9, False, False, False, Verdict.PAUSE),
        (137, True, True, True, Verdict.PAUSE),
        (1, False, False, False, Verdict.GIVE_UP),
        (2, False, False, True, Verdict.GIVE_UP),
        (1, False, True, False, Verdict.PAUSE),
    ],
)
def test_what_follows_when_a_worker_ends(
    code: int, came_up: bool, anyone_up: bool, batch: bool, verdict: Verdict
) -> None:
    assert after(code, came_up=came_up, anyone_up=anyone_up, batch=batch) is verdict


def test_each_worker_has_the_options_a_name_and_only_the_first_a_scheduler() -> None:
    crew = Crew(SupervisorCommand(processes=2, name="box", grace_s=1, arguments=["--slots", "3"], with_scheduler=True))
    crew.start().supervisor.stop()
    assert crew.join() == 0
    common = ["ductor_worker", "--slots", "3", "--no-reload", "--supervised", "--worker-id"]
    assert crew.processes["box-1"].arguments == [*common, "box-1", "--with-scheduler"]
    assert crew.processes["box-2"].arguments == [*common, "box-2"]


def test_one_that_dies_is_started_again_the_other_is_left_alone() -> None:
    crew = Crew().start()
    crew.processes["box-1"].end(-9)
    until(lambda: crew.processes["box-1"].starts == 2)
    assert crew.processes["box-1"].pauses == [False]
    assert crew.processes["box-2"].starts == 1
    crew.supervisor.stop()
    assert crew.join() == 0


@pytest.mark.parametrize("code", [0, 5, 6])
def test_one_that_ended_in_good_order_is_replaced_at_once(code: int) -> None:
    crew = Crew().start()
    crew.processes["box-2"].end(code)
    until(lambda: crew.processes["box-2"].starts == 2)
    assert crew.processes["box-2"].pauses == [True]
    crew.supervisor.stop()
    assert crew.join() == 0


def test_without_any_that_could_start_it_ends_with_1() -> None:
    crew = Crew().start()
    crew.processes["box-2"].up = False
    crew.processes["box-1"].end(1, up=False)
    assert crew.join() == 1
    assert not crew.processes["box-2"].running
    assert crew.processes["box-1"].starts == 1


def test_a_batch_ends_when_all_have_found_nothing_left() -> None:
    crew = Crew(SupervisorCommand(processes=2, name="box", grace_s=25.0, batch=True)).start()
    crew.processes["box-1"].end(0)
    crew.processes["box-2"].end(6)
    until(lambda: crew.processes["box-2"].starts == 2)
    assert crew.thread.is_alive()
    crew.processes["box-2"].end(0)
    assert crew.join() == 0
    assert crew.processes["box-1"].starts == 1


def test_the_first_stop_is_graceful_the_second_comes_again_the_third_kills() -> None:
    crew = Crew().start()
    for each in crew.processes.values():
        each.stubborn = 2
    stubborn, other = crew.processes["box-1"], crew.processes["box-2"]
    other.stubborn = 1
    crew.supervisor.stop()
    until(lambda: [each.told[0] for each in (stubborn, other)] == [1, 1])
    assert stubborn.running
    assert other.running
    crew.supervisor.stop()
    until(lambda: not other.running)
    assert stubborn.told[0] == 2
    assert stubborn.running
    crew.supervisor.stop()
    assert crew.join() == 4
    assert stubborn.exit_code == -9


def test_what_has_not_ended_within_the_grace_is_killed() -> None:
    now = [0.0]
    crew = Crew(clock=lambda: now[0]).start()
    crew.processes["box-1"].stubborn = 99
    crew.supervisor.stop()
    until(lambda: crew.processes["box-1"].told[0] == 1)
    now[0] = COMMAND.grace_s + supervisor.MARGIN_S - 0.1
    assert crew.processes["box-1"].running
    now[0] += 0.2
    assert crew.join() == 4


def test_a_worker_cut_short_shows_in_the_exit_code() -> None:
    crew = Crew().start()
    crew.processes["box-2"].code_of_stop = 4
    crew.supervisor.stop()
    assert crew.join() == 4


def test_a_worker_that_left_an_overdue_body_behind_has_lost_nothing() -> None:
    crew = Crew().start()
    crew.processes["box-2"].code_of_stop = 5
    crew.supervisor.stop()
    assert crew.join() == 0


def test_a_worker_that_had_not_begun_has_nothing_to_lose() -> None:
    crew = Crew().start()
    crew.processes["box-2"].up = False
    crew.processes["box-2"].terminate = lambda: crew.processes["box-2"].end(-15, up=False)  # type: ignore[method-assign]
    crew.supervisor.stop()
    assert crew.join() == 0


def test_one_that_is_due_when_the_stop_comes_is_not_started_again() -> None:
    crew: Crew
    crew = Crew(clock=lambda: 61.0 if crew.supervisor._stops else 0.0).start()
    died = crew.processes["box-1"]
    died.due = 60.0
    died.end(-9)
    until(lambda: died.pauses == [False])
    crew.supervisor.stop()  # the moment has come by the time that it is heard
    assert crew.join() == 0
    assert died.starts == 1


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["--processes", "4", "--slots", "8"], ["--slots", "8"]),
        (["--processes=4", "--pool=a,b", "--reload"], ["--pool=a,b"]),
        (["--metrics-addr", ":9101", "--worker-id", "box", "--log", "json"], ["--log", "json"]),
        (["--with-scheduler", "--no-reload", "--max-tasks", "9", "-v2"], ["--max-tasks", "9", "-v2"]),
        (["--settings", "a.b", "--fail-seed", "-3", "--batch"], ["--settings", "a.b", "--fail-seed", "-3", "--batch"]),
        (["--proc", "2", "--max-memory", "300"], ["--max-memory", "300"]),
    ],
)
def test_what_is_passed_on_to_every_worker(given: list[str], left: list[str]) -> None:
    assert passed_on(given) == left
