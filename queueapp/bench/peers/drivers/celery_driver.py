# mypy: disable-error-code="import-not-found, untyped-decorator"
"""Celery, as its guide to optimising says for many short tasks: a high prefetch multiplier, no results, no rate limits.

A worker has threads or processes. It has no call that sends many.
"""

from __future__ import annotations

import marks
from celery import Celery

# 64 a slot: the guide says 50 to 150 where tasks are short.
app = Celery("celery_driver", broker=marks.URL.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host="))
app.conf.update(
    task_ignore_result=True,
    task_acks_late=False,
    worker_prefetch_multiplier=64,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="body")
def body(number: int, ms: int) -> None:
    marks.body(number, ms)


@app.task(name=marks.TASK)
def take(text: str) -> None:
    """Never run: jobs with texts only wait."""


def texts(count: int) -> None:
    for _ in range(count):
        take.delay(marks.TEXT)


if __name__ == "__main__":
    work = marks.asked_to_work()
    if work is not None:
        slots, pool = work
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
        marks.become("-m", "celery", "-A", "celery_driver", "worker", "-P", pool, "-c", str(slots), *quiet)
    marks.main(marks.Driver(one=body.delay, many=None, texts=texts))
