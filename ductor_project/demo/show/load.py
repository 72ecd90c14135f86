"""Who uploads what and when: the same files at the same moments for every policy. Pure and seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ductor_project.demo.checking import HEADER
from ductor_project.demo.models import ROWS_PER_CHUNK

BIG = "atlas"
SHARES = {BIG: 90, "birch": 3, "cedar": 3, "dahlia": 2, "elm": 2}
"""Tenant → percent of the jobs."""
SMALL = tuple(tenant for tenant in SHARES if tenant != BIG)

FLOOD = 0.35
"""Part of the big tenant's files that are uploaded at once, before anybody else comes."""
BIG_FROM, BIG_TO = 0.05, 0.30
"""When it uploads the others, in parts of the time that the workers need for all the work: faster than they work."""
SMALL_FROM, SMALL_TO = 0.13, 0.29
"""When the small tenants upload: while the jobs of the big one wait."""
BIG_FILE_CHUNKS = 40
SMALL_FILE_CHUNKS = 5

FIRST_NAMES = ("Ada", "Björn", "Chiara", "Dmitri", "Esther", "Farid", "Greta", "Hiroshi", "Ines", "Jonas", "Katarzyna")
LAST_NAMES = (
    "Abel",
    "Brandt",
    "Costa",
    "Dubois",
    "Eriksen",
    "Fischer",
    "Greco",
    "Haas",
    "Ibarra",
    "Jansen",
    "Kowalski",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that a tenant uploads `at_s` after the beginning."""

    at_s: float
    tenant: str
    name: str
    chunks: int


def plan(jobs: int, length_s: float) -> list[File]:
    """The uploads of about `jobs` chunks, in order. `length_s` is how long the workers take for all of them.

    The big tenant begins with a flood and goes on uploading; while its jobs wait, the small tenants upload small files,
    in turn. The last file is the big one's, so that under either policy all the work of the small ones comes before it.
    """
    counts = {tenant: max(SMALL_FILE_CHUNKS, round(jobs * share / 100)) for tenant, share in SHARES.items()}
    big = _files(counts[BIG], BIG_FILE_CHUNKS)
    early = max(1, round(len(big) * FLOOD))
    small = sorted((moment, tenant, size) for tenant in SMALL for moment, size in _spread(counts[tenant]))
    entries = [(0.0, BIG, size) for size in big[:early]]
    entries += [(moment, BIG, size) for moment, size in _evenly(BIG_FROM, BIG_TO, big[early:])]
    entries += [
        (moment, tenant, size)
        for (moment, size), (_, tenant, _) in zip(
            _evenly(SMALL_FROM, SMALL_TO, [size for _, _, size in small]), small, strict=True
        )
    ]
    entries.sort(key=lambda entry: entry[0])
    return [
        File(at_s=part * length_s, tenant=tenant, name=f"payments-{number:03d}.csv", chunks=size)
        for number, (part, tenant, size) in enumerate(entries)
    ]


def _files(chunks: int, size: int) -> list[int]:
    """Files of about `size` chunks."""
    count = max(1, round(chunks / size))
    return [chunks * (number + 1) // count - chunks * number // count for number in range(count)]


def _spread(chunks: int) -> list[tuple[float, int]]:
    """The files of a small tenant, each with the part of the way at which it is to come: their turns interleave."""
    sizes = _files(chunks, SMALL_FILE_CHUNKS)
    return [((number + 0.5) / len(sizes), size) for number, size in enumerate(sizes)]


def _evenly(first: float, last: float, sizes: Sequence[int]) -> list[tuple[float, int]]:
    """Sizes at even distances from `first` to `last`, both included."""
    step = (last - first) / max(1, len(sizes) - 1)
    return [(first + step * number, size) for number, size in enumerate(sizes)]


def csv_text(file: File) -> str:
    """The content of a file: the same for the same name, tenant and size."""
    dice = random.Random(f"{file.tenant}/{file.name}/{file.chunks}")
    return "\n".join([HEADER, *_rows(dice, file.chunks * ROWS_PER_CHUNK)]) + "\n"


def _rows(dice: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        first, last = dice.choice(FIRST_NAMES), dice.choice(LAST_NAMES)
        account = f"{dice.randrange(10**18):018d}"
        # A hundredth of the check digits is wrong, so that summaries have something to tell.
        digits = _check_digits(account) if dice.random() >= 0.01 else "00"
        amount = f"{dice.randrange(100, 10_000_000) / 100:.2f}"
        day = f"2026-{dice.randrange(1, 13):02d}-{dice.randrange(1, 29):02d}"
        yield f"{first} {last},{last.lower()}.{dice.randrange(10**6)}@example.com,DE{digits}{account},{amount},{day}"


def _check_digits(account: str) -> str:
    return f"{98 - int(account + '131400') % 97:02d}"  # DE00 at the end, letters as numbers
