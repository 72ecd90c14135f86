"""retry, discard, cancel: every id becomes a word, none stops the others, and what was done is written down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest
from django.db import OperationalError

from queueapp.errors import StoreUnavailable
from queueapp.inspection import actions, bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.jobs import find_job
from queueapp.models import DeadLetterInspection
from queueapp.store import shards
from queueapp.store.store import Store
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db

NOBODY = "aaaaaa.0.0000000000000000000000"


def mixed(scene: Scene) -> tuple[list[str], dict[str, int]]:
    """1,000 ids of jobs in every state, of jobs that are gone, and of none; how many of each."""
    ended, dead = scene.end(150), scene.kill(300)
    waiting, scheduled = scene.add(200), scene.add(50, delay_ms=3_600_000)
    running = scene.lease(60)
    gone = [scene.keys.public_id(f"{number:022}") for number in range(200)]
    strange = [f"abcdef.0.{number:022}" for number in range(50)] + ["", "nonsense", "a.b.c"] + [NOBODY] * 47
    ids = [*ended, *dead, *waiting, *scheduled, *gone, *strange]
    assert len(ids) == 1_000
    ids.sort(key=lambda text: text[::-1])
    return ids, {
        "dead": len(dead),
        "ended": len(ended),
        "active": len(running),
        "waiting": len(waiting) + len(scheduled) - len(running),
        "gone": len(gone) + len(strange),
    }


@pytest.mark.parametrize("verb", ["retry", "discard", "cancel"])
def test_c156_a_bulk_action_does_not_stop_at_the_first_problem(scene: Scene, verb: str) -> None:
    """C156: a bulk action stops at the first problem entry with part done. Right: counts of done, skipped, and why."""
    ids, number = mixed(scene)
    act: Callable[[Sequence[str]], Done] = getattr(bulk, f"{verb}_many")
    done = act(ids)
    rest = number["ended"] + number["active"] + number["waiting"]
    assert (
        done.counts
        == {
            "retry": {"retried": number["dead"], "already": rest, "gone": number["gone"]},
            "discard": {"discarded": number["dead"], "already": rest, "gone": number["gone"]},
            "cancel": {
                "cancelled": number["waiting"],
                "already": number["ended"] + number["dead"],
                "stopping": number["active"],
                "gone": number["gone"],
            },
        }[verb]
    )
    assert done.fault == ""
    again = act(ids)
    assert {"retried", "discarded", "cancelled"} & again.counts.keys() == set(), "nothing twice"
    assert sum(again.counts.values()) == 1_000


def test_the_summary_says_done_skipped_and_why() -> None:
    done = Done(counts={"retried": 412, "already": 3, "gone": 2})
    assert done.summary() == "412 retried, 3 skipped: not in that state any more, 2 skipped: no such job."
    assert Done().summary() == "nothing to do."
    assert (done + Done(counts={"retried": 1, "active": 5})).counts == {
        "retried": 413,
        "already": 3,
        "active": 5,
        "gone": 2,
    }


def test_a_bulk_action_asks_the_store_per_batch_and_not_per_job(scene: Scene, round_trips: RoundTrips) -> None:
    ids = scene.bury(1_000) + [f"abcdef.0.{number:022}" for number in range(50)]
    bulk.cancel_many(ids[:1])
    bulk.discard_many([ids[0], NOBODY])  # connections are made, scripts are known
    round_trips.since_last()
    bulk.cancel_many(ids)
    assert round_trips.since_last() <= 4 + 1, "a batch of 250 each, and one question about an unknown pool"
    bulk.discard_many(ids)
    assert round_trips.since_last() <= 8 + 1


def test_jobs_of_several_pools_in_one_call(scene: Scene, settings: object) -> None:
    (here,) = scene.kill()
    other = Scene(shards.store("reports"), shards.keys("reports"))
    (there,) = other.kill()
    assert bulk.retry_many([here, there]).counts == {"retried": 2}
    assert other.store.verify() == []


def test_what_was_done_to_dead_letters_is_written_down(scene: Scene) -> None:
    one, two = scene.kill(2)
    (waiting,) = scene.add()
    bulk.retry_many([one, waiting, NOBODY], by="kim", note="supplier is back")
    bulk.discard_many([two], by="kim")
    bulk.discard_many([two], by="kim")
    bulk.cancel_many([waiting], by="kim")
    rows = {row.job_id: row for row in DeadLetterInspection.objects.all()}
    assert DeadLetterInspection.objects.count() == 2, "only what was done, and only to dead letters"
    row = rows[one]
    assert (row.action, row.outcome, row.by, row.note) == ("retried", "retried", "kim", "supplier is back")
    assert (row.pool, row.tenant, row.task) == ("default", "acme", "shop.tasks.pay")
    assert (row.reason, row.error) == ("error", "builtins.ValueError")
    assert (rows[two].action, rows[two].note) == ("discarded", "")


def test_exports_are_written_down(scene: Scene) -> None:
    (one,) = scene.kill()
    letter = find_job(one)
    assert letter is not None
    actions.record_export([letter], by="kim")
    row = DeadLetterInspection.objects.get()
    assert (row.job_id, row.action, row.outcome, row.by) == (one, "exported", "", "kim")


def test_a_database_that_is_away_does_not_fail_the_action(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (one,) = scene.kill()

    def away(*arguments: object, **options: object) -> None:
        raise OperationalError("no such host")

    monkeypatch.setattr(DeadLetterInspection.objects, "bulk_create", away)
    with caplog.at_level(logging.ERROR, logger="queueapp.inspection.actions"):
        assert bulk.retry_many([one], by="kim").counts == {"retried": 1}
    assert "1 dead letters could not be written down: no such host" in caplog.text


def test_very_long_names_still_fit_the_row(scene: Scene) -> None:
    (one,) = scene.bury(1, task="shop." + "t" * 600, reason="r" * 100)
    bulk.retry_many([one], by="b" * 300, note="n" * 5_000)
    row = DeadLetterInspection.objects.get()
    row.full_clean()
    assert (len(row.task), len(row.reason), len(row.by), len(row.note)) == (512, 64, 200, 5_000)


def test_a_store_that_goes_away_in_the_middle_is_told_with_what_was_done(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = scene.bury(600)
    discard, calls = Store.discard, []

    def failing(self: Store, inner: Sequence[str]) -> list[str]:
        calls.append(len(inner))
        if len(calls) == 2:
            raise StoreUnavailable("The store does not answer.")
        return discard(self, inner)

    monkeypatch.setattr(Store, "discard", failing)
    done = bulk.discard_many(ids)
    assert (done.counts, done.fault) == ({"discarded": 250, "unreached": 350}, "The store does not answer.")
    assert done.summary() == "250 discarded, 350 not reached (The store does not answer.)."
    calls.append(0)
    calls.pop(0)
    calls.pop(0)
    with pytest.raises(StoreUnavailable):
        bulk.discard_many(ids)


def test_nothing_to_do_asks_nobody(round_trips: RoundTrips) -> None:
    assert bulk.retry_many([]).counts == {}
    assert round_trips.count == 0
