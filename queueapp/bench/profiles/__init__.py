"""Profiles: what a benchmark runs, as a TOML file that comes with the package or is one's own.

A profile sets the workloads' shape, how many jobs run in how many slots how often, what goes wrong meanwhile, and what
the tenants' limits are. What it does not set is as `Shape`, `Run` and `Failures` have it. Pure but for the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from queueapp.bench.profiles.profile import Profile, Run
from queueapp.bench.profiles.reading import InvalidProfile, Table
from queueapp.bench.profiles.tables import profile

__all__ = ["NAMES", "InvalidProfile", "Profile", "Run", "load"]

DIRECTORY = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in DIRECTORY.glob("*.toml")))
"""The profiles of the package."""


def load(name: str) -> Profile:
    """One of `NAMES`, or a file of one's own by its path. Raises InvalidProfile with what is wrong and what to do."""
    path = DIRECTORY / f"{name}.toml" if name in NAMES else Path(name)
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        told = (
            f"profile is {name!r}, which cannot be read ({error.strerror}): give one of {', '.join(NAMES)}, or a file."
        )
        raise InvalidProfile(told) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidProfile(f"{path.name} is no TOML: {error}.") from error
    return profile(name, Table(path.name, fields))
