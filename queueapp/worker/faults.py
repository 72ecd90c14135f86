"""Faults on order, for tests and benchmarks: bodies that raise, or only take time, and outcomes that are not reported.

Off unless the command was told so. The dice are seeded, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Literal


class InjectedFault(Exception):
    """Raised in place of a body by `--fail-rate`."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """What every job does instead of its body: waits so long, or computes for so long. It returns None."""

    kind: Literal["sleep", "cpu"]
    ms: float

    def spend(self) -> None:
        if self.kind == "sleep":
            time.sleep(self.ms / 1000)
            return
        # Time of this thread, so that what others take meanwhile does not count.
        end = time.thread_time() + self.ms / 1000
        while time.thread_time() < end:
            pass

    async def aspend(self) -> None:
        if self.kind == "sleep":
            await asyncio.sleep(self.ms / 1000)
        else:
            self.spend()


@dataclass(slots=True)
class Faults:
    """`fail_rate` of the bodies raise before they start; the outcome of `before_ack_rate` of them is dropped."""

    fail_rate: float = 0.0
    before_ack_rate: float = 0.0
    seed: int | None = None
    stand_in: StandIn | None = None
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def before_body(self) -> None:
        """Raises InjectedFault now and then."""
        if self.fail_rate and self._dice.random() < self.fail_rate:
            raise InjectedFault(f"Injected by --fail-rate {self.fail_rate:g}")

    def body(self, given: Callable[[], Any], func: Callable[..., Any]) -> Callable[[], Any]:
        """What is called for a job of a task of this function: what is given, or what stands in for it."""
        if self.stand_in is None:
            return given
        return self.stand_in.aspend if iscoroutinefunction(func) else self.stand_in.spend

    def drops_outcome(self) -> bool:
        """Whether the worker is to behave as if it had died between the body's end and the report."""
        return bool(self.before_ack_rate) and self._dice.random() < self.before_ack_rate
