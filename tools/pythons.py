"""Finds the Python interpreters of this machine that Ductor runs on. Standard library only, any Python from 3.8 on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PREFERRED = ("3.13", "3.12", "3.14", "3.11")
"""The versions that Ductor supports, the first choice first."""

PROBE = """
import json, platform, sys
try:
    import ensurepip, venv
    can = True
except ImportError:
    can = False
wheels = platform.libc_ver()[0] == "glibc" or sys.platform == "darwin"
print(json.dumps([sys.version_info[:3], sys.executable, can, wheels]))
"""


class Interpreter(NamedTuple):
    """One Python: `can_venv` is False where Debian has split the venv module off."""

    version: str
    full_version: str
    path: str
    can_venv: bool
    has_wheels: bool
    """Whether the embedded server's package has a binary for this platform (glibc or macOS)."""


def probe(candidate: str) -> Interpreter | None:
    """What the program at `candidate` is, or None when it is no Python that runs."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        answer = subprocess.run(
            [candidate, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, env=environment
        )
        (major, minor, micro), path, can_venv, has_wheels = json.loads(answer.stdout)
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return None
    return Interpreter(f"{major}.{minor}", f"{major}.{minor}.{micro}", path, can_venv, has_wheels)


def _candidates() -> list[str]:
    names = ["python" + version for version in PREFERRED] + ["python3", "python"]
    found = [getattr(sys, "_base_executable", sys.executable) or sys.executable]
    found += [path for path in map(shutil.which, names) if path]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for directory in sorted(pyenv.glob("3.*")) if pyenv.is_dir() else []:
        if any(directory.name.startswith(version + ".") for version in PREFERRED):
            found.append(str(directory / "bin" / "python"))
    for directory_name in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"):
        found += [str(path) for path in (Path(directory_name) / name for name in names) if path.exists()]
    uv = shutil.which("uv")
    for version in PREFERRED if uv else ():
        answer = subprocess.run(
            [str(uv), "python", "find", "--no-project", "--system", version],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if answer.returncode == 0 and answer.stdout.strip():
            found.append(answer.stdout.strip())
    return list(dict.fromkeys(found))


def find_all() -> list[Interpreter]:
    """One interpreter of each supported version, the first choice first; those that can make environments win."""
    best: dict[str, Interpreter] = {}
    for candidate in _candidates():
        found = probe(candidate)
        if found is None or found.version not in PREFERRED:
            continue
        known = best.get(found.version)
        if known is None or (found.can_venv and not known.can_venv):
            best[found.version] = found
    return [best[version] for version in PREFERRED if version in best]
