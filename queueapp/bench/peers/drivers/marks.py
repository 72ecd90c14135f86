"""What all drivers in Python have in common: marks, by which bodies say when they began, and the driver's commands.

The benchmark runs a driver as `python DRIVER COMMAND …` in the environment of the peer; so this needs only Python.
Three variables say with what: PEER_URL and PEER_SOCKET name the server, PEER_MARKS the file of the marks.

    single COUNT           send so many jobs one by one, the next when the call has returned; tell the seconds
    bulk COUNT CHUNK       the same with the peer's call for many jobs
    fill COUNT CHUNK MS    send jobs that take MS milliseconds, as fast as can be; nothing is told
    texts COUNT CHUNK      send jobs with a text of 100 bytes; nothing is told
    starts COUNT           send single jobs to a worker that is idle again each time; tell when each call began, ended
    work SLOTS VARIANT     become a worker

What is told is one line of JSON, the last of the output.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NoReturn

URL = os.environ.get("PEER_URL", "")
SOCKET = os.environ.get("PEER_SOCKET", "")
TASK = "customer.billing.statements.tasks.send_monthly_statement_pdf"
"""The name of the task that takes a text: a path of 60 characters, as a host's would be."""
TEXT = "x" * 96
"""As JSON, a list of this one argument has 100 bytes."""
WARM_UP = 50
"""Jobs that are sent before the time is taken. They have no mark."""
NO_MARK = -1
APPEARS_WITHIN_S = 20.0
PAUSES_S = (0.008, 0.009, 0.010, 0.011, 0.012)
"""How long the worker is left alone before the next single job; not always the same, so as to hit no rhythm of it."""

Pair = tuple[int, int]
"""Arguments of a job: the number of its mark, and how many milliseconds it takes."""

_cells: Any = None


def cells() -> Any:
    """The marks: a number for each job, the moment at which its body began, 0 as long as it has not."""
    global _cells
    if _cells is None:
        with open(os.environ["PEER_MARKS"], "r+b") as file:
            _cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
    return _cells


def begin(number: int) -> None:
    """Said by a body, first of all. A store into memory that the benchmark sees: no call to the server, no lock."""
    if number >= 0:
        cells()[number] = time.monotonic()


def body(number: int, ms: int) -> None:
    """What a job does: nothing, or sleep."""
    begin(number)
    if ms:
        time.sleep(ms / 1000)


async def async_body(number: int, ms: int) -> None:
    """The same for a peer that runs coroutines."""
    begin(number)
    if ms:
        await asyncio.sleep(ms / 1000)


def become(*command: str, **variables: str) -> NoReturn:
    """Run the peer's own command in place of this program, with this directory to import from."""
    sys.stdout.flush()
    here = os.path.dirname(os.path.abspath(__file__))
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, "PYTHONPATH": here, **variables})


def script(name: str) -> str:
    """A program that the peer installed beside its Python."""
    return os.path.join(os.path.dirname(sys.executable), name)


# -- commands ----------------------------------------------------------------------------------------------------


class Driver:
    """How one peer is driven: `one` job, `many` in one call (None where it has no such call), jobs with `texts`.

    With `awaits` the calls return awaitables, and `main` is used within a loop.
    """

    def __init__(
        self,
        *,
        one: Callable[[int, int], Any],
        many: Callable[[Sequence[Pair]], Any] | None,
        texts: Callable[[int], Any],
        awaits: bool = False,
    ) -> None:
        self.one, self.many, self.texts, self.awaits = one, many, texts, awaits


def asked_to_work() -> tuple[int, str] | None:
    """Slots and variant, when the command is `work`."""
    return (int(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "work" else None


def main(driver: Driver) -> None:
    """Do what the command line says; for a driver whose calls block."""
    try:
        command(driver).send(None)  # nothing in it waits for a loop
    except StopIteration:
        return
    raise RuntimeError("A driver whose calls block has awaited something.")


async def command(driver: Driver) -> None:
    """Do what the command line says."""
    name, *words = sys.argv[1:]
    print(json.dumps(await COMMANDS[name](driver, *map(int, words))), flush=True)


async def _single(driver: Driver, count: int) -> object:
    one, awaits = driver.one, driver.awaits
    begun = 0.0
    for number in (*[NO_MARK] * WARM_UP, *range(count)):
        if number == 0:
            begun = time.perf_counter()
        sent = one(number, 0)
        if awaits:
            await sent
    return {"seconds": time.perf_counter() - begun}


async def _bulk(driver: Driver, count: int, chunk: int) -> object:
    if driver.many is None:
        return {"seconds": None}
    await _send(driver, [NO_MARK] * WARM_UP, 0)
    begun = time.perf_counter()
    for page in pages(count, chunk):
        await _send(driver, page, 0)
    return {"seconds": time.perf_counter() - begun}


async def _fill(driver: Driver, count: int, chunk: int, ms: int) -> object:
    for page in pages(count, chunk):
        await _send(driver, page, ms)
    return {}


async def _send(driver: Driver, page: Sequence[int], ms: int) -> None:
    if driver.many is not None:
        sent = driver.many([(number, ms) for number in page])
        if driver.awaits:
            await sent
        return
    for number in page:
        sent = driver.one(number, ms)
        if driver.awaits:
            await sent


async def _texts(driver: Driver, count: int, chunk: int) -> object:
    for page in pages(count, chunk):
        sent = driver.texts(len(page))
        if driver.awaits:
            await sent
    return {}


async def _starts(driver: Driver, count: int) -> object:
    calls = []
    for number in range(count):
        before = time.monotonic()
        sent = driver.one(number, 0)
        if driver.awaits:
            await sent
        calls.append((before, time.monotonic()))
        await_mark(number)
        pause = PAUSES_S[number % len(PAUSES_S)]
        if driver.awaits:
            await asyncio.sleep(pause)
        else:
            time.sleep(pause)
    return {"calls": calls}


COMMANDS: dict[str, Callable[..., Coroutine[Any, Any, object]]] = {
    "single": _single,
    "bulk": _bulk,
    "fill": _fill,
    "texts": _texts,
    "starts": _starts,
}


def pages(count: int, chunk: int) -> Iterator[range]:
    """The numbers of `count` jobs, `chunk` at a time."""
    for first in range(0, count, chunk):
        yield range(first, min(first + chunk, count))


def await_mark(number: int) -> None:
    """Until the body has begun."""
    mark, end = cells(), time.monotonic() + APPEARS_WITHIN_S
    while not mark[number]:
        if time.monotonic() > end:
            sys.exit(f"Job {number} has not begun within {APPEARS_WITHIN_S:g} s.")
        time.sleep(0.0005)
