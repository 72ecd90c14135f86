"""Job ids: UUIDv7 in 22 characters that sort by bytes in the order in which one process made them.

Called by the producer. Safe in threads, and after a fork: 62 bits of every id are drawn afresh, so that parent and
child never meet, and the child begins with a lock of its own.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import time

_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
ALPHABET = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""The 64 characters in the order of their bytes, so that text order is number order."""
LENGTH = 22

_TO_SORTED = bytes.maketrans(_BASE64, ALPHABET)
_FROM_SORTED = bytes.maketrans(ALPHABET, _BASE64)
_COUNTER_END = 1 << 12


class _Sequence:
    """The last (millisecond, counter) handed out. A clock that steps back does not take the order along."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last_ms = 0
        self.counter = 0

    def advance(self) -> tuple[int, int]:
        now_ms = time.time_ns() // 1_000_000
        with self.lock:
            if now_ms > self.last_ms:
                # The upper half stays free for what else comes within this millisecond.
                self.last_ms, self.counter = now_ms, int.from_bytes(os.urandom(2), "big") & 0x7FF
            else:
                self.counter += 1
                if self.counter == _COUNTER_END:
                    self.last_ms, self.counter = self.last_ms + 1, 0
            return self.last_ms, self.counter

    def renew_lock(self) -> None:
        self.lock = threading.Lock()


_sequence = _Sequence()
os.register_at_fork(after_in_child=_sequence.renew_lock)


def new_id() -> str:
    """A new id: 48 bits of milliseconds, a 12-bit counter, 62 random bits, with the version and variant of UUIDv7."""
    made_ms, counter = _sequence.advance()
    return _spelt(made_ms, counter, int.from_bytes(os.urandom(8), "big"))


def new_child_id() -> str:
    """A new id of a job for which another one waits: the same, with the version of UUIDv8.

    So the end of any other job costs no look for a parent (lua/include/kin.lua).
    """
    made_ms, counter = _sequence.advance()
    return _spelt(made_ms, counter, int.from_bytes(os.urandom(8), "big"), version=8)


def fixed_id(at_ms: int, what: str) -> str:
    """The id of that which `what` names at a moment: the same whoever makes it, and in whatever process."""
    drawn = int.from_bytes(hashlib.sha256(f"{at_ms} {what}".encode()).digest()[:10], "big")
    return _spelt(at_ms, drawn >> 64 & (_COUNTER_END - 1), drawn)


def _spelt(made_ms: int, counter: int, random: int, version: int = 7) -> str:
    number = made_ms << 80 | version << 76 | counter << 64 | 0b10 << 62 | random & ((1 << 62) - 1)
    return base64.b64encode(number.to_bytes(16, "big"))[:LENGTH].translate(_TO_SORTED).decode()


def made_ms(job_id: str) -> int:
    """The moment, on the producer's clock, at which an id was made: milliseconds since the epoch."""
    head = base64.b64decode(job_id[:8].encode().translate(_FROM_SORTED))
    return int.from_bytes(head, "big")


def made_order(job_id: str) -> int:
    """Where an id stands among all: 63 bits, its millisecond before its counter before some of what was drawn."""
    number = int.from_bytes(base64.b64decode(job_id[:LENGTH].encode().translate(_FROM_SORTED) + b"=="), "big")
    return (number >> 80 & (1 << 42) - 1) << 21 | (number >> 64 & _COUNTER_END - 1) << 9 | number >> 53 & 0x1FF
