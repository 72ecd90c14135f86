"""What a body returns is the run's to keep, and may be larger than the result of a job."""

from __future__ import annotations

import pytest

from flows import flow, step
from queueapp import task
from queueapp.conf import settings
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@task(max_attempts=1)
def large(size: int) -> str:
    return "x" * size


@task(max_attempts=1)
async def alarge(text: str) -> str:
    return text + "y"


@flow
def passes_it_on(size: int) -> object:
    return step(alarge, step(large, size))


def test_a_step_that_has_completed_is_no_job_that_failed(store: Store, reads: Reads) -> None:
    size = settings.max_result_bytes + 1
    run = passes_it_on.start(size)
    work()
    assert run.refresh().output == "x" * size + "y"
    overview = reads.overview()
    assert overview.dead == 0
    assert overview.stats["completed"] == 2
