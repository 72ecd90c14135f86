"""`stack --metrics-addr`: one page for all processes of the stack.

The children keep their instruments in a directory of the stack's own (PROMETHEUS_MULTIPROC_DIR), which goes with it;
the stack's process adds them up, those of children that have ended included, and tells how the pools stand.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from queueapp.inspection.collector import STORE, LeaderCollector
from queueapp.monitoring.health import outside
from queueapp.monitoring.listener import Answers, Listener
from queueapp.monitoring.page import page


class StackMetrics:
    """The page and the probes. `scheduler` is the name of the stack's scheduler, `children` says which do not run."""

    def __init__(self, where: tuple[str, int], scheduler: str, children: Callable[[], str]) -> None:
        """Raises DuctorError when the address cannot be had."""
        self._scheduler = scheduler
        self._directory = Path(tempfile.mkdtemp(prefix="ductor-metrics-"))
        collectors = [STORE, LeaderCollector(self._leading)]
        answers = Answers(
            page=lambda accept: page(accept, collectors, self._directory),
            ailing=lambda: "",
            unready=lambda: children() or outside(),
        )
        try:
            self._listener = Listener(*where, answers)
        except BaseException:
            self._remove()
            raise
        self._listener.start()

    @property
    def url(self) -> str:
        return self._listener.url

    @property
    def environment(self) -> Mapping[str, str]:
        """What the children need to keep their instruments here."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self._directory)}

    def close(self) -> None:
        self._listener.close()
        self._remove()

    def _leading(self) -> Mapping[str, bool]:
        """By the store: a scheduler that hangs cannot tell that it has lost the lease."""
        return {pool.pool: pool.leader.startswith(f"{self._scheduler}.") for pool in STORE.look().pools}

    def _remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
