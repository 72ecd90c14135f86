"""Tasks for worker processes under test. They speak with the test through files in a directory it names."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from queueapp import task
from tests.unit.metrics.reading import here

POLL_S = 0.005
PATIENCE_S = 60.0


def note(place: str, name: str) -> None:
    """One line in a file: a single write of a few bytes is whole, whoever else writes."""
    with Path(place, name).open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic():.6f}\n")


@task
def noop(value: Any = None) -> Any:
    return value


@task
def started(place: str, name: str) -> None:
    note(place, name)


@task(takes_context=True)
def block(context: Any, place: str, name: str = "block") -> str:
    """Notes that it runs, then waits until the test makes the file `go`, or its lease is lost."""
    note(place, name)
    deadline = time.monotonic() + PATIENCE_S
    while not Path(place, "go").exists() and time.monotonic() < deadline:
        if context.is_cancelled:
            note(place, f"{name}-cancelled")
            return "cancelled"
        time.sleep(POLL_S)
    return "went"


@task
def sleep(seconds: float, place: str = "", name: str = "sleep") -> None:
    if place:
        note(place, name)
    time.sleep(seconds)


@task
def fail_once(place: str) -> str:
    """Raises in its first run."""
    if not Path(place, "failed").exists():
        Path(place, "failed").touch()
        raise ValueError("the first time")
    return "went"


@task
def broken() -> None:
    raise ValueError("each time")


@task
def die(place: str, name: str = "die") -> None:
    """Kills its process, as the kernel does when memory is short."""
    note(place, name)
    os._exit(137)


@task(takes_context=True)
def progress(context: Any) -> int:
    context.set_progress(1, 2, "half way")
    context.save_metadata({"rows": 7})
    return int(context.attempt)


@task
async def wait_for_ever(place: str, name: str = "coroutine") -> None:
    """Notes that it runs, and when it is cancelled."""
    note(place, name)
    try:
        await asyncio.sleep(PATIENCE_S)
    except asyncio.CancelledError:
        note(place, f"{name}-cancelled")
        raise


@task(takes_context=True, max_crashes=5)
def count_to_four(context: Any, place: str) -> int:
    """Dies after each step, and goes on where it was."""
    done = context.checkpoint or 0
    note(place, f"step-{done}")
    if done < 3:
        context.save_checkpoint(done + 1)
        os._exit(137)
    return int(done) + 1


@task
def grow(mebibytes: int, place: str) -> int:
    """Takes memory, and keeps it until the test makes the file `go`."""
    ballast = bytearray(os.urandom(1024) * 1024 * mebibytes)
    deadline = time.monotonic() + PATIENCE_S
    while not Path(place, "go").exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return len(ballast) // 1024**2


@task
def spawn(wanted: int, tenant: str = "") -> list[str]:
    """Enqueues one job after another, until so many have begun in this very process."""
    child = noop.using(tenant=tenant) if tenant else noop
    ids: list[str] = []
    end = time.monotonic() + PATIENCE_S
    while here("ductor_syncmatch_total", pool="default", outcome="hit") < wanted and time.monotonic() < end:
        result = child.enqueue(len(ids))
        result.wait(timeout=PATIENCE_S)
        ids.append(result.id)
    return ids


@task(timeout=0.3, max_attempts=1)
def overstay(place: str) -> None:
    """Does not end within its time limit, nor when it is told to."""
    note(place, "overstay")
    time.sleep(PATIENCE_S)


@task
def leave_thread() -> None:
    """Leaves a thread behind that keeps its process from ending."""
    threading.Thread(target=time.sleep, args=(PATIENCE_S,)).start()


@task
def tell(word: str) -> None:
    """Logs as a host's code does."""
    logging.getLogger("shop.orders").warning(word)


@task
async def meets_all(place: str, number: int) -> int:
    """Waits until it may go on, then asks the database."""
    from django.contrib.contenttypes.models import ContentType  # a test names a module as an app that imports this one

    (Path(place) / f"met-{number}").touch()
    while not (Path(place) / "go").exists():
        await asyncio.sleep(0.05)
    return await ContentType.objects.filter(app_label="queueapp", model="pool").acount()
