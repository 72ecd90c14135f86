"""The thread that listens for results, when it cannot be."""

from __future__ import annotations

import threading

import pytest

from queueapp.producer.waiting import Waiter


def test_a_thread_that_cannot_be_started_is_not_believed_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would start one later, and every result of this process would come by asking anew."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    waiter = Waiter()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        waiter.listen("default")

    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    waiter.listen("default")
    assert len(started) == 1
