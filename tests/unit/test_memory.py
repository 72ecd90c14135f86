"""`--max-memory`: the look at a process's own memory."""

from __future__ import annotations

import threading

import pytest

from queueapp.cli import memory
from queueapp.cli.memory import MIB, MemoryWatch, resident_bytes


def test_it_sees_memory_come() -> None:
    before = resident_bytes()
    ballast = bytearray(b"x" * (64 * MIB))
    assert resident_bytes() - before > 48 * MIB
    assert len(ballast) == 64 * MIB


@pytest.mark.parametrize(("found", "told"), [(100, []), (101, [101])])
def test_the_limit_itself_may_be_used(found: int, told: list[int]) -> None:
    heard: list[int] = []
    assert MemoryWatch(100, heard.append, lambda: found).look() is bool(told)
    assert heard == told


def test_it_looks_again_and_again_and_tells_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "EVERY_S", 0.001)
    found = iter([1, 2, 300, 300])
    told = threading.Event()
    heard: list[int] = []

    def passed(seen: int) -> None:
        heard.append(seen)
        told.set()

    watch = MemoryWatch(100, passed, lambda: next(found))
    watch.start()
    assert told.wait(10)
    watch.close()
    assert heard == [300]
    assert next(found) == 300, "it has looked three times"
