"""Reading and checking the rows of a chunk: the computing part of an import. Pure: no database, no store."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation

HEADER = "customer,email,iban,amount,booked"
EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
ALIKE = 0.6
"""A name that shares so many of its trigrams with a name of the watch list is taken for it."""
WATCHED_FIRST = (
    *("Anselm", "Bruna", "Cosmo", "Delphine", "Egon", "Fiona", "Gaspard", "Helga", "Ivo", "Jolanda", "Kuno"),
    *("Lavinia", "Matteo", "Nadezhda", "Ottokar"),
)
WATCHED_LAST = (
    *("Abernathy", "Bellini", "Cazalet", "Dragan", "Esterhazy", "Fontana", "Grimaldi", "Horvath", "Iversen"),
    *("Jelinek", "Kalnoky", "Lombardi", "Morozov", "Nyberg", "Orsini", "Palffy", "Quental", "Rakoczi"),
)
WATCH_LIST = tuple(f"{first} {last}" for first in WATCHED_FIRST for last in WATCHED_LAST)
"""Whose payments somebody has to look at; invented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRow:
    """A row as it will be stored. `fault` is empty for a good one."""

    line: int
    customer: str
    email: str
    iban: str
    amount: Decimal | None
    booked: date | None
    fault: str


def check(text: str) -> list[CheckedRow]:
    """Every row of a chunk, in order. A faulty row is kept with what is wrong with it: its owner can mend it."""
    return [_read(line, fields) for line, fields in enumerate(csv.reader(text.splitlines()))]


def _read(line: int, fields: Sequence[str]) -> CheckedRow:
    customer, email, iban, amount, booked = (*(field.strip() for field in fields), "", "", "", "", "")[:5]
    faults = []
    if len(fields) != 5:
        faults.append(f"{len(fields)} fields instead of 5")
    if not EMAIL.fullmatch(email):
        faults.append("no e-mail address")
    if not iban_holds(iban):
        faults.append("no valid IBAN")
    value = _amount(amount)
    if value is None:
        faults.append("no amount")
    day = _day(booked)
    if day is None:
        faults.append("no date")
    if (watched := on_watch_list(customer)) is not None:
        faults.append(f"looks like {watched} of the watch list")
    return CheckedRow(
        line=line,
        customer=" ".join(unicodedata.normalize("NFKC", customer).split())[:200],
        email=email.lower()[:200],
        iban=iban.replace(" ", "").upper()[:34],
        amount=value,
        booked=day,
        fault="; ".join(faults)[:200],
    )


def iban_holds(text: str) -> bool:
    """Whether the check digits of an IBAN are right (ISO 7064, mod 97)."""
    iban = text.replace(" ", "").upper()
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{10,30}", iban):
        return False
    return int("".join(str(int(letter, 36)) for letter in iban[4:] + iban[:4])) % 97 == 1


def _amount(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value.quantize(Decimal("0.01")) if value.is_finite() and abs(value) < 10**10 else None


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def on_watch_list(name: str) -> str | None:
    """The name of the watch list that this one looks most like, when it is alike enough."""
    trigrams = _trigrams(name)
    likeness, watched = max((len(trigrams & known) / len(trigrams | known), text) for text, known in _WATCHED)
    return watched if likeness >= ALIKE else None


def _trigrams(name: str) -> frozenset[str]:
    padded = f"  {' '.join(unicodedata.normalize('NFKD', name).casefold().split())} "
    return frozenset(padded[at : at + 3] for at in range(len(padded) - 2))


_WATCHED = [(name, _trigrams(name)) for name in WATCH_LIST]
