# mypy: disable-error-code="import-not-found, untyped-decorator"
"""Dramatiq with one process of threads, and the middleware that it has by itself. It has no call that sends many.

The variant is `dramatiq_queue_prefetch`: with 1,000 it drains nearly twice as fast as with its own two for a thread.
"""

from __future__ import annotations

import dramatiq
import marks
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=marks.URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def body(number: int, ms: int) -> None:
    marks.body(number, ms)


@dramatiq.actor(actor_name=marks.TASK)
def take(text: str) -> None:
    """Never run: jobs with texts only wait."""


def texts(count: int) -> None:
    for _ in range(count):
        take.send(marks.TEXT)


if __name__ == "__main__":
    work = marks.asked_to_work()
    if work is not None:
        slots, prefetch = work
        threads = ("-p", "1", "-t", str(slots))
        marks.become("-m", "dramatiq", "dramatiq_driver", *threads, dramatiq_queue_prefetch=prefetch)
    marks.main(marks.Driver(one=body.send, many=None, texts=texts))
