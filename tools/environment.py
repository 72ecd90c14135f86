"""Makes virtual environments with Ductor installed, and knows when one is still right. Standard library only.

An environment carries a stamp: a digest of pyproject.toml, the Python and what was installed. While it matches, nothing
is done, so that a second run starts in seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".ductor"

sys.path.insert(0, str(ROOT))

from tools.pythons import PREFERRED, Interpreter, find_all, probe  # noqa: E402  (found by the path above)

EXTRAS = "api,cache,prometheus,cli,bench,test,check"
PROGRESS_S = 10


def say(text: str = "") -> None:
    print(text, flush=True)


def give_up(text: str) -> NoReturn:
    """End with the one line that tells what to do."""
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(1)


def in_ci_as_root() -> bool:
    return os.environ.get("CI") == "true" and hasattr(os, "getuid") and os.getuid() == 0


def apt_install(*packages: str) -> bool:
    """Install Debian packages where that is ours to do: in CI, as root. False where it is not."""
    if not in_ci_as_root() or shutil.which("apt-get") is None:
        return False
    say(f"  apt-get install {' '.join(packages)}")
    # RUNLEVEL=1: the packages' services are not started.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        with_log = subprocess.run(["apt-get", *command], env=environment, stdout=subprocess.DEVNULL)
        if with_log.returncode != 0:
            return False
    return True


def python_of(directory: Path) -> Path:
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def environment_of(directory: Path) -> dict[str, str]:
    """The process environment for programs of the virtual environment in `directory`."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    environment["VIRTUAL_ENV"] = str(directory)
    environment["PATH"] = str(python_of(directory).parent) + os.pathsep + environment.get("PATH", "")
    return environment


def django_for(version: str) -> str:
    """The Django of the main environment on a version of Python: Django 6 needs 3.12."""
    return "5.2" if version == "3.11" else "6.0"


def requirements(interpreter: Interpreter, django: str, extras: str, pins: tuple[str, ...] = ()) -> list[str]:
    """The arguments of `pip install` for Ductor on one Django."""
    chosen = extras.split(",")
    if interpreter.has_wheels:
        chosen.append("dev")
    if django == "5.2":
        chosen.append("tasks52")
    if django == "6.1" and "prometheus" in chosen:
        # django-prometheus admits no Django 6.1 and would pull an older Django in.
        chosen.remove("prometheus")
    return ["-e", f".[{','.join(chosen)}]", f"Django=={django}.*", *pins]


def choose() -> Interpreter:
    """The interpreter of the main environment, or the one line to type when there is none."""
    wanted = os.environ.get("DUCTOR_PYTHON")
    if wanted:
        found = probe(wanted) or probe(f"python{wanted}")
        by_version = [entry for entry in find_all() if entry.version == wanted] if found is None else []
        found = found or next(iter(by_version), None)
        if found is None:
            give_up(f"DUCTOR_PYTHON={wanted} is no Python that runs here.")
        if found.version not in PREFERRED:
            give_up(f"DUCTOR_PYTHON={wanted} is Python {found.full_version}; Ductor needs 3.11, 3.12, 3.13 or 3.14.")
        return found
    interpreters = find_all()
    usable = [entry for entry in interpreters if entry.can_venv or shutil.which("uv")]
    if usable:
        return usable[0]
    if interpreters:
        without = interpreters[0]
        package = f"python{without.version}-venv"
        if apt_install(package):
            return next(iter(entry for entry in find_all() if entry.can_venv), without)
        give_up(f"Python {without.full_version} here cannot make environments. Type: sudo apt-get install {package}")
    if shutil.which("uv"):
        subprocess.run(["uv", "python", "install", PREFERRED[0]], check=False)
        if installed := find_all():
            return installed[0]
    give_up(
        f"No Python 3.11 to 3.14 was found (this is {sys.version.split()[0]}). "
        "Type: curl -LsSf https://astral.sh/uv/install.sh | sh   and run make again."
    )


def ensure(directory: Path, interpreter: Interpreter | None, *, django: str = "", extras: str = EXTRAS,
           pins: tuple[str, ...] = ()) -> float:  # fmt: skip
    """Make the environment in `directory` right; returns the seconds that it took. None as interpreter: choose one."""
    begun = time.monotonic()
    if interpreter is None:
        wish = os.environ.get("DUCTOR_PYTHON")
        interpreter = (None if wish else _stamped_interpreter(directory)) or choose()
    django = django or django_for(interpreter.version)
    wanted = requirements(interpreter, django, extras, pins)
    project = (ROOT / "pyproject.toml").read_bytes()
    stamp = hashlib.sha256(project + json.dumps([interpreter.full_version, wanted]).encode()).hexdigest()
    record = directory / "ductor.json"
    if _read(record).get("stamp") == stamp and python_of(directory).exists():
        return time.monotonic() - begun
    say(f"  {_shown(directory)}: {', '.join([f'Python {interpreter.full_version}', f'Django {django}', *pins])}")
    if _stamped_interpreter(directory) != interpreter:
        _make(directory, interpreter)
    record.unlink(missing_ok=True)
    _install(directory, interpreter, wanted)
    record.write_text(json.dumps({"stamp": stamp, "interpreter": list(interpreter)}))
    return time.monotonic() - begun


def _stamped_interpreter(directory: Path) -> Interpreter | None:
    """The interpreter that the environment was made with, unless the environment is gone or half made."""
    fields = _read(directory / "ductor.json").get("interpreter")
    if not isinstance(fields, list) or not python_of(directory).exists():
        return None
    return Interpreter(*fields)


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _make(directory: Path, interpreter: Interpreter) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    if interpreter.can_venv:
        command = [interpreter.path, "-m", "venv", str(directory)]
    else:
        command = ["uv", "venv", "--quiet", "--seed", "--python", interpreter.path, str(directory)]
    if subprocess.run(command).returncode != 0:
        give_up(f"Making {_shown(directory)} failed. Type to see why: {' '.join(command)}")


def _install(directory: Path, interpreter: Interpreter, wanted: list[str]) -> None:
    log = STATE / "install.log"
    log.parent.mkdir(exist_ok=True)
    pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command = [str(python_of(directory)), *pip, *wanted]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=environment_of(directory)
        )
        begun = shown = time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                last = (log.read_text(errors="replace").strip().splitlines() or ["…"])[-1].strip()
                say(f"    {shown - begun:3.0f} s  {last[:90]}")
    if process.returncode != 0:
        say("\n".join(log.read_text(errors="replace").splitlines()[-15:]))
        give_up(f"Installing into {_shown(directory)} failed (the whole output: {_shown(log)}).")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(ROOT))
    except ValueError:
        return str(path)
