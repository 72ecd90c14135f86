"""Turns: one tick of a run at a time in this process. Who comes meanwhile leaves word, and is served by whom it is.

Between processes the run's lock decides; this spares threads of one process, which see each other, to fight over it.
"""

from __future__ import annotations

import threading


class Turns:
    """Whose turn it is, by run. Whoever has taken one gives it back: by `again`, once that is False, or by `leave`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[str, bool] = {}
        """Run → whether somebody came since the tick that is under way began."""

    def take(self, run_id: str) -> bool:
        """False: somebody is at it, and will make one more tick."""
        with self._lock:
            taken = run_id not in self._wanted
            self._wanted[run_id] = not taken
            return taken

    def again(self, run_id: str, more: bool) -> bool:
        """The tick is through. True: one more. False: the turn is given back."""
        with self._lock:
            if more or self._wanted[run_id]:
                self._wanted[run_id] = False
                return True
            del self._wanted[run_id]
            return False

    def leave(self, run_id: str) -> None:
        """Gives the turn back with ticks still to be made: whoever leaves sees to it that somebody makes them."""
        with self._lock:
            del self._wanted[run_id]
