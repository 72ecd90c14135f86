"""Faults on order, for tests and benchmarks: bodies that raise, and outcomes that are never reported.

Off unless the command was given a rate. The dice are seeded, so that a run can be repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


class InjectedFault(Exception):
    """Raised in place of a body by `--fail-rate`."""


@dataclass(slots=True)
class Faults:
    """`fail_rate` of the bodies raise before they start; the outcome of `before_ack_rate` of them is dropped."""

    fail_rate: float = 0.0
    before_ack_rate: float = 0.0
    seed: int | None = None
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def before_body(self) -> None:
        """Raises InjectedFault now and then."""
        if self.fail_rate and self._dice.random() < self.fail_rate:
            raise InjectedFault(f"Injected by --fail-rate {self.fail_rate:g}")

    def drops_outcome(self) -> bool:
        """Whether the worker is to behave as if it had died between the body's end and the report."""
        return bool(self.before_ack_rate) and self._dice.random() < self.before_ack_rate
