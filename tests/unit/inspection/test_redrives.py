"""Dead letters that run again, many at once: each once, behind the other work, at a rate, until errors come back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import pytest

from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.bulk import Redrive, retry_many
from queueapp.inspection.selection import Selection, count
from queueapp.models import DeadLetterInspection
from queueapp.states import State
from queueapp.store.store import Store
from tests.lua.harness import Shard, failed
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.selecting import FAST, dead, live, states

pytestmark = pytest.mark.django_db


# -- C126: retry all, pressed twice ------------------------------------------------------------------------------------


def test_c126_retry_all_pressed_twice_does_nothing_the_second_time(scene: Scene) -> None:
    """C126: 'retry all failed' puts copies back while the failed entries stay. Right: each job back once."""
    ids = scene.bury(500)
    assert retry_many(dead(), redrive=FAST).counts == {"retried": 500}
    assert count(dead()).number == 0
    assert retry_many(dead(), redrive=FAST).counts == {}
    assert set(states(ids)) == {"pending"}
    assert count(live()).number == 500
    assert DeadLetterInspection.objects.count() == 500


@pytest.mark.django_db(transaction=True)
def test_c126_two_admins_at_once_bring_each_job_back_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found the same dead letters before either does anything."""
    ids = scene.bury(500)
    together, act = threading.Barrier(2, timeout=30), Store.retry_from_dlq
    monkeypatch.setattr("queueapp.inspection.actions._write", lambda rows: None)  # one SQLite, two threads

    def meeting(self: Store, inner: Sequence[str], **pace: float) -> list[str]:
        together.wait()
        return act(self, inner, **pace)

    monkeypatch.setattr(Store, "retry_from_dlq", meeting)
    found: list[Done] = []
    threads = [
        threading.Thread(target=lambda: found.append(retry_many(ids, by="kim"))),
        threading.Thread(target=lambda: found.append(retry_many(ids, by="lee"))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = found[0] + found[1]
    assert done.counts == {"retried": 500, "already": 500}
    assert count(live()).number == 500


def test_c126_running_and_succeeded_jobs_are_not_retried(scene: Scene) -> None:
    succeeded, again = scene.end(1), scene.kill(1)
    retry_many(again)
    scene.lease()
    assert retry_many([*succeeded, *again]).counts == {"already": 2}
    assert count(dead()).number == 0


# -- a redrive is fair, at a rate, and stops ---------------------------------------------------------------------------


def test_redriven_jobs_stand_behind_the_other_work_of_their_tenant(shard: Shard) -> None:
    letters = shard.add(*(shard.job() for _ in range(3)))
    shard.store.move_to_dlq(letters, "why")
    waiting = shard.add(*(shard.job() for _ in range(2)))
    retry_many(dead(), redrive=FAST)
    assert [job.id for job in shard.lease(9)] == [*waiting, *letters], "oldest death first"


def test_a_rate_lays_a_chunk_out_on_the_server_and_waits_for_it(shard: Shard) -> None:
    letters = shard.add(*(shard.job() for _ in range(45)))
    shard.store.move_to_dlq(letters, "why")
    slept: list[float] = []
    sizes: list[int] = []
    done = retry_many(
        dead(),
        redrive=Redrive(rate=10, stop_after=0),
        progress=lambda done: sizes.append(done.done),
        sleep=slept.append,
    )
    assert done.counts == {"retried": 45}
    assert (sizes, slept) == ([20, 40, 45], [2.0, 2.0])
    jobs = [job for job in shard.reads.jobs(letters) if job is not None]
    assert [job.state for job in jobs].count(State.PENDING) == 3, "the first of each chunk at once"
    due = sorted(job.due_ms for job in jobs[1:20])
    assert [later - sooner for sooner, later in itertools.pairwise(due)] == [100] * 18


def test_a_request_lays_all_of_it_out_and_waits_for_nothing(shard: Shard) -> None:
    letters = shard.add(*(shard.job() for _ in range(300)))
    shard.store.move_to_dlq(letters, "why")

    def never(_: float) -> None:
        raise AssertionError

    done = retry_many(dead(), redrive=Redrive(rate=100, waits=False), sleep=never, most=280)
    assert (done.counts, done.more) == ({"retried": 280}, True)
    due = [job.due_ms for job in shard.reads.jobs(letters[1:280]) if job is not None]
    assert max(due) - min(due) >= 2_600, "a hundred a second, whatever the chunks; less what the first call took"
    assert count(dead()).number == 20


@pytest.mark.parametrize(("stop_after", "redriven"), [(0.5, 40), (15, 40), (0, 100), (0.95, 100)])
def test_a_redrive_stops_when_errors_come_back(shard: Shard, stop_after: float, redriven: int) -> None:
    letters = shard.add(*(shard.job() for _ in range(100)))
    shard.store.move_to_dlq(letters, "why")

    def dying(_: float) -> None:
        """What was laid out runs meanwhile, and nine of ten die again."""
        shard.now_ms += 2_000
        shard.store.promote_due()
        for number, job in enumerate(shard.lease(50)):
            if number % 10:
                shard.store.fail([failed(job)])

    # The clock of the shard is that of the test; the bulk asks the server's.
    meant = Selection(pool="default", states=(State.DEAD,), as_of_ms=shard.now_ms + 1)
    done = bulk.retry_many(meant, redrive=Redrive(rate=20, stop_after=stop_after), sleep=dying)
    assert done.counts == {"retried": redriven}
    assert done.fault == ("" if redriven == 100 else "stopped: 36 of the last 40 that were retried are dead again")


def test_ids_go_back_at_once_unless_a_rate_is_asked_for(scene: Scene) -> None:
    ids = scene.bury(3)
    retry_many(ids)
    assert states(ids) == ["pending"] * 3
    others = scene.bury(2)
    retry_many(others, redrive=Redrive(rate=1))
    assert states(others) == ["pending", "scheduled"]
