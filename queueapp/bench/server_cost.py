"""What the server spent on some work, from its own `commandstats`: time in scripts, commands that they ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

SCRIPTS = frozenset({"fcall", "function|load", "eval", "evalsha", "script|load"})
NOT_WORK = frozenset({"info", "time", "ping", "client|setinfo", "client|setname", "hello", "select", "config|get"})
"""What connections and this measurement itself send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The server's share of some work."""

    script_us: float
    """Time inside scripts, with everything that they called."""
    commands: int
    """Commands that were run, inside scripts and outside; the scripts themselves are not counted."""

    def commands_per(self, jobs: int) -> float:
        return self.commands / jobs

    def us_per(self, jobs: int) -> float:
        return self.script_us / jobs


class Meter:
    """Counts from the moment it is made, or from the last `read`."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._last = self._stats()

    def read(self) -> Cost:
        """What was spent since. Whoever else uses the server is counted too."""
        now, before = self._stats(), self._last
        self._last = now
        script_us = 0.0
        commands = 0
        for name, (calls, usec) in now.items():
            old_calls, old_usec = before.get(name, (0, 0.0))
            if name in SCRIPTS:
                script_us += usec - old_usec
            elif name not in NOT_WORK:
                commands += calls - old_calls
        return Cost(script_us=script_us, commands=commands)

    def _stats(self) -> Mapping[str, tuple[int, float]]:
        info: Any = self._client.info("commandstats")
        return {
            name.removeprefix("cmdstat_"): (int(entry["calls"]), float(entry["usec"])) for name, entry in info.items()
        }
