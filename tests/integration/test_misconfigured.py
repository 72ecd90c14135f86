"""C146: producer and worker that mean different stores, prefixes or pools: somebody says so, nothing is unseen."""

from __future__ import annotations

import pytest

from queueapp.compat import InvalidTask
from queueapp.errors import UnknownPool
from queueapp.inspection.overview import pool_status
from queueapp.states import State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.integration import jobs
from tests.integration.conftest import Manage, record


@pytest.mark.django_db
def test_c146_a_misspelt_pool_is_refused_at_enqueue() -> None:
    with pytest.raises(UnknownPool, match="'defualt' is not a known pool; known: default") as caught:
        jobs.noop.using(queue_name="defualt").enqueue()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, InvalidTask)


def test_c146_a_misspelt_pool_ends_the_worker_command(worker: Manage) -> None:
    running = worker("--pool", "default,defualt")
    assert running.wait() == 1
    assert "defualt" in running.output
    assert "default" in running.output.replace("defualt", ""), "the known ones are listed"
    assert "Traceback" not in running.output


def test_c146_a_worker_under_another_namespace_leaves_the_jobs_and_status_says_so(
    worker: Manage, store: Store, reads: Reads
) -> None:
    result = jobs.noop.enqueue()

    assert worker("--batch", NAMESPACE="elsewhere").wait() == 0

    assert record(reads, result.id).state is State.PENDING
    assert "No worker serves this pool: start one with `manage.py worker`." in pool_status("default").notes
    assert worker("--batch").wait() == 0
    assert record(reads, result.id).state is State.ENDED


def test_c146_a_pool_that_the_workers_do_not_serve_shows_as_such(worker: Manage, store: Store) -> None:
    pools: dict[str, object] = {"mail": {}}
    running = worker("--pool", "mail", POOLS=pools)
    running.wait_for("Worker started")
    jobs.noop.enqueue()

    assert any("No worker serves this pool" in note for note in pool_status("default").notes)
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("given", "number", "words"),
    [
        ({"NAMESPCE": "x"}, "E101", "Did you mean NAMESPACE"),
        ({"LEASE_SECONDS": "30"}, "E1", "LEASE_SECONDS"),
        ({"REDIS_URL": 6379}, "E1", "REDIS_URL"),
    ],
)
def test_c146_settings_that_are_unknown_or_of_a_wrong_type_are_named(
    manage: Manage, worker: Manage, given: dict[str, object], number: str, words: str
) -> None:
    checked = manage("check", **given)
    assert checked.wait() == 1
    assert f"queueapp.{number}" in checked.output
    assert words in checked.output
    started = worker(**given)
    assert started.wait() == 1
    assert words in started.output
