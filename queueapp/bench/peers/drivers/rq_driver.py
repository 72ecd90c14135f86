# mypy: disable-error-code="import-not-found"
"""RQ, as its page on workers says for more throughput: a pool of workers, and results that are not kept.

One worker runs one job at a time, so each slot is a process. `SimpleWorker` runs jobs in it; the usual class forks for
each job, and begins a fifth as many.
"""

from __future__ import annotations

from collections.abc import Sequence

import marks
from redis import Redis
from rq import Queue

queue = Queue(connection=Redis.from_url(marks.URL))


def one(number: int, ms: int) -> None:
    queue.enqueue("marks.body", number, ms, result_ttl=0)


def many(pairs: Sequence[marks.Pair]) -> None:
    queue.enqueue_many([Queue.prepare_data("marks.body", pair, result_ttl=0) for pair in pairs])


def texts(count: int) -> None:
    queue.enqueue_many([Queue.prepare_data(marks.TASK, (marks.TEXT,), result_ttl=0) for _ in range(count)])


if __name__ == "__main__":
    work = marks.asked_to_work()
    if work is not None:
        slots, _ = work
        pool = ("worker-pool", "-n", str(slots), "-w", "rq.worker.SimpleWorker", "-u", marks.URL, "-q")
        marks.become("-m", "rq.cli", *pool)
    marks.main(marks.Driver(one=one, many=many, texts=texts))
