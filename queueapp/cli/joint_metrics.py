"""One page for a family of processes: of `stack --metrics-addr`, and of `worker --processes` with it.

The children keep their instruments in a directory of the family's own (PROMETHEUS_MULTIPROC_DIR), which goes with it;
the parent adds them up, those of children that have ended included, so that no counter falls when one is replaced.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from prometheus_client.registry import Collector

from queueapp.inspection.collector import STORE, LeaderCollector
from queueapp.monitoring.listener import Answers, Listener
from queueapp.monitoring.page import page


class JointMetrics:
    """The page and the probes. `unready` and `ailing` say what is wrong with the family."""

    def __init__(
        self,
        where: tuple[str, int],
        collectors: Sequence[Collector],
        *,
        unready: Callable[[], str],
        ailing: Callable[[], str] = lambda: "",
        shared: Path | None = None,
    ) -> None:
        """`shared`: where the host has the processes keep their instruments, instead of a directory of ours.

        Raises DuctorError when the address cannot be had.
        """
        # Only this user may look into it: probes of children are asked here, too.
        self.directory = Path(tempfile.mkdtemp(prefix="ductor-metrics-"))
        answers = Answers(
            page=lambda accept: page(accept, collectors, shared or self.directory), ailing=ailing, unready=unready
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
        return {"PROMETHEUS_MULTIPROC_DIR": str(self.directory)}

    def close(self) -> None:
        self._listener.close()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def pools_led_by(scheduler: str) -> Sequence[Collector]:
    """How the pools stand, and which of them the scheduler of this name leads.

    By the store: a scheduler that hangs cannot tell that it has lost the lease.
    """
    return [STORE, LeaderCollector(partial(_leading, scheduler))]


def _leading(scheduler: str) -> Mapping[str, bool]:
    return {pool.pool: pool.leader.startswith(f"{scheduler}.") for pool in STORE.look().pools}
