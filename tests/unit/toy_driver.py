# mypy: disable-error-code="import-not-found"
"""A queue of a few lines, driven as a peer is (`queueapp.bench.peers.drivers`): the benchmark can be tested on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import marks
import redis

client = redis.Redis.from_url(marks.URL, protocol=2)


def one(number: int, ms: int) -> None:
    client.rpush("toy", f"{number} {ms}")


def many(pairs: Sequence[marks.Pair]) -> None:
    client.rpush("toy", *[f"{number} {ms}" for number, ms in pairs])


def texts(count: int) -> None:
    client.rpush("toy", *[marks.TEXT] * count)


def work(variant: str) -> None:
    if variant == "dies":
        sys.exit("toy: no server would have me")
    while True:
        number, ms = map(int, client.blpop(["toy"])[1].split())  # type: ignore[index]  # it waits for ever
        marks.body(number, ms)


if __name__ == "__main__":
    asked = marks.asked_to_work()
    if asked is not None:
        work(asked[1])
    elif os.environ.get("TOY") == "broken":
        sys.exit("toy: broken")
    else:
        marks.main(marks.Driver(one=one, many=None if os.environ.get("TOY") == "single" else many, texts=texts))
