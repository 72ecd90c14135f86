"""Job ids: their form, their order, and that no two processes meet."""

from __future__ import annotations

import base64
import os
import re
import select
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from queueapp.store import ids
from queueapp.store.ids import made_ms, new_id
from queueapp.store.keys import ShardKeys, pool_code, split_public_id


def number(job_id: str) -> int:
    return int.from_bytes(base64.b64decode(job_id.encode().translate(ids._FROM_SORTED) + b"=="), "big")


def test_an_id_is_a_uuid7_of_22_characters() -> None:
    before_ms = time.time_ns() // 1_000_000
    job_id = new_id()
    uuid = UUID(int=number(job_id))

    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", job_id)
    assert uuid.version == 7
    assert uuid.variant == "specified in RFC 4122"
    assert before_ms <= uuid.int >> 80 <= before_ms + 5_000
    assert made_ms(job_id) == uuid.int >> 80


def test_text_order_is_the_order_of_making() -> None:
    made = [new_id() for _ in range(20_000)]

    assert made == sorted(made)
    assert made == sorted(made, key=str.encode)
    assert len(set(made)) == len(made)


def test_a_clock_that_steps_back_does_not_take_the_order_along(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)

    assert new_id() > first


def test_more_ids_than_the_counter_holds_in_one_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_sequence", ids._Sequence())
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)

    made = [new_id() for _ in range(10_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [job_id for batch in pool.map(lambda _: [new_id() for _ in range(500)], range(16)) for job_id in batch]

    assert len(set(made)) == len(made)


def test_a_forked_child_makes_other_ids_although_its_lock_was_held() -> None:
    reading, writing = os.pipe()
    with ids._sequence.lock:  # as if another thread were making an id at the fork
        child = os.fork()
        if child == 0:
            os.write(writing, ",".join(new_id() for _ in range(100)).encode())
            os._exit(0)
    mine = {new_id() for _ in range(100)}
    answered, _, _ = select.select([reading], [], [], 10)
    theirs = set(os.read(reading, 65_536).decode().split(",")) if answered else set()
    os.kill(child, signal.SIGKILL)  # one that waits for its parent's lock would wait for ever
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)

    assert len(theirs) == 100
    assert mine.isdisjoint(theirs)


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "abcdef.0",
        f"abcdef.{'9' * 5000}.{'x' * 22}",
        f"abcdef.\u0660.{'x' * 22}",
        f"abcdef.0.{'x' * 21}\ud800",
        f"abcdef.0.{'x' * 22}\n",
        f"ABCDEF.0.{'x' * 22}",
        f"abcdef.0.{'x' * 23}",
        f"abcdef.0.{'|' * 22}",
    ],
)
def test_what_is_no_public_id_is_none(odd: str) -> None:
    assert split_public_id(odd) is None


def test_a_public_id_gives_its_parts_back() -> None:
    keys = ShardKeys("ns", pool_code("mail"), 3)
    job_id = new_id()
    assert split_public_id(keys.public_id(job_id)) == (keys.code, 3, job_id)
