"""The text of a metrics page: this process's instruments, or those of all processes of one directory.

With PROMETHEUS_MULTIPROC_DIR set, the processes of a machine keep their instruments in files of that directory, and a
page that any one of them serves is the sum of all. What ended processes have counted is kept in one more file, so that
a counter does not fall when its process ends; gauges of an ended process go. Gauges that are true of a pool come from
the store at the moment of the request (`inspection.collector`) and are never summed.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import cast

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

ENDED = "ended"
"""Stands in the name of the files with what ended processes have counted, where others have a process id."""
SUMMED = ("counter", "histogram", "summary")
LOCK_S = 1.0


def directory() -> Path | None:
    """Where the processes of this machine keep their instruments together; None: each has its own."""
    given = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return Path(given) if given else None


def page(accept: str, collectors: Sequence[Collector], shared: Path | None = None) -> tuple[bytes, str]:
    """Text and content type. `accept` is the header of the request, `collectors` are what is shown beside.

    `shared` is the directory of the processes whose instruments are shown; None: those of this process.
    """
    registry = CollectorRegistry()
    if shared is None:
        # A registry can be collected as a collector can; the library's types do not say so.
        registry.register(cast("Collector", REGISTRY))
        beside = [collector for collector in collectors if not _is_registered(collector)]
    else:
        registry.register(SharedInstruments(shared))
        beside = list(collectors)
    for collector in beside:
        registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def register(collector: Collector) -> None:
    """Puts a collector into the default registry, once, so that the host's own exposition shows it."""
    if not _is_registered(collector):
        REGISTRY.register(collector)


class SharedInstruments(Collector):
    """The instruments of all processes that keep them in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[object]:  # type: ignore[override]  # the library's own collector is not typed
        with locked(self._directory) as alone:
            if alone:
                sweep(self._directory)
            files = [str(path) for path in self._directory.glob("*.db") if _is_made(path)]
            return cast("Iterable[object]", MultiProcessCollector.merge(files))


def sweep(directory: Path) -> None:
    """Adds up the files of processes that have ended, and removes what was only true while they lived.

    The caller holds the lock. Process ids are those of this machine, or container.
    """
    ended = [path for path in directory.glob("*.db") if _has_ended(path)]
    for kind in SUMMED:
        files = [path for path in ended if path.name.startswith(f"{kind}_")]
        if files:
            _add_up(directory / f"{kind}_{ENDED}.db", files)
    for path in ended:
        if path.name.startswith((*SUMMED, "gauge_live")):
            path.unlink(missing_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[bool]:
    """One at a time: while files are added up, nobody reads them. False when somebody had the lock for a whole second.

    The directory is made when it is not there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "ductor.lock").open("w") as file:
        yield _lock(file.fileno())


def _lock(descriptor: int) -> bool:
    end = monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > end:
                return False
            sleep(0.01)
        else:
            return True


def _is_registered(collector: Collector) -> bool:
    return collector in REGISTRY._collector_to_names


def _is_made(path: Path) -> bool:
    """A file that a process is just making is empty; the library would stumble over it."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _has_ended(path: Path) -> bool:
    number = path.stem.rpartition("_")[2]
    if not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _add_up(total: Path, files: Sequence[Path]) -> None:
    sums: dict[str, float] = defaultdict(float)
    for path in filter(_is_made, [*files, total]):
        for key, value, *_ in MmapedDict.read_all_values_from_file(str(path)):
            sums[key] += value
    fresh = total.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    written = MmapedDict(str(fresh))
    for key, value in sums.items():
        written.write_value(key, value, 0.0)
    written.close()
    fresh.replace(total)
