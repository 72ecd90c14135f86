"""A host's project in a directory and a virtual environment of its own, and a browser for it that knows only HTTP."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

T = TypeVar("T")
DEADLINE_S = 60.0


def until(call: Callable[[], T], what: Callable[[], str]) -> T:
    """The first true answer of `call`; asked again until it comes or the test fails with `what`."""
    end = time.monotonic() + DEADLINE_S
    while not (answer := call()):
        if time.monotonic() > end:
            pytest.fail(what())
        time.sleep(0.05)
    return answer


@dataclass(slots=True)
class Project:
    """`run` calls programs in it as a person at a shell would, with the environment's Python first on the PATH."""

    directory: Path
    environment: Path
    django: str
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def make(cls, directory: Path, django: str) -> Project:
        """An empty directory with an environment that holds nothing but pip."""
        project = cls(directory / "project", directory / "venv", django)
        project.directory.mkdir(parents=True)
        if shutil.which("uv"):
            command = ["uv", "venv", "--quiet", "--seed", "--python", sys.executable, str(project.environment)]
        else:
            command = [sys.executable, "-m", "venv", str(project.environment)]
        subprocess.run(command, check=True)
        # Which Django the host has; the README says nothing about that.
        (directory / "constraints.txt").write_text(f"Django=={django}.*\n")
        return project

    @property
    def variables(self) -> dict[str, str]:
        ours = ("DJANGO_SETTINGS_MODULE", "PYTHONPATH", "REDIS_URL", "DATABASE_URL", "DEBUG", "PIP_CONSTRAINT")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ours and not name.startswith(("PYTEST_", "COV_", "DUCTOR_"))
        }
        return {
            **inherited,
            "VIRTUAL_ENV": str(self.environment),
            "PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(self.directory.parent / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SUPERUSER_PASSWORD": "a long password",
        }

    def run(self, line: str) -> str:
        """One line of shell; its output. A failure of it is one of the test."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.directory,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if done.returncode:
            pytest.fail(f"$ {line}\n{done.stdout}\n(exit {done.returncode}, Django {self.django})")
        return done.stdout

    def start(self, line: str) -> Running:
        """A line of shell that goes on until it is stopped."""
        log = self.directory.parent / f"output-{len(self.started)}.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {line}"],
                cwd=self.directory,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return Running(line, process, log)

    def stop_all(self) -> None:
        """End what still runs. The stack's children end with it, by their leash."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@dataclass(frozen=True, slots=True)
class Running:
    """A process, and the file that holds what it says."""

    line: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.output, lambda: f"$ {self.line}\ndid not say {text!r} but:\n{self.output}")

    def stop(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.output


class _Form(HTMLParser):
    """What the fields of a page's forms would send as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._select: str | None = None
        self._area: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, kind = given.get("name"), given.get("type", "text")
        if tag == "input" and name and kind not in {"submit", "button", "file"}:
            if kind not in {"checkbox", "radio"} or "checked" in given:
                self.values[name] = given.get("value") or ("on" if kind == "checkbox" else "")
        elif tag == "select" and name:
            self._select = name
            self.values[name] = ""
        elif tag == "option" and self._select and "selected" in given:
            self.values[self._select] = given.get("value") or ""
        elif tag == "textarea" and name:
            self._area = name
            self.values[name] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        elif tag == "textarea":
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area:
            self.values[self._area] += data.removeprefix("\n")


class Browser:
    """Asks for pages and sends forms, with cookies."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> str:
        try:
            with self._opener.open(self.base + path, timeout=20) as answer:
                text: str = answer.read().decode()
                return text
        except HTTPError as error:
            pytest.fail(f"GET {path}: {error}\n{error.read().decode()[:2000]}")

    def is_up(self) -> bool:
        try:
            self._opener.open(f"{self.base}/admin/login/", timeout=20).close()
        except URLError:
            return False
        return True

    def send(self, path: str, *, another: str = "", **values: str) -> str:
        """Fill the form of a page with these values, the others as they are, and send it.

        `another` names the rows of which one more is wanted: what the admin's script does with its empty form.
        """
        form = _Form()
        form.feed(self.get(path))
        fields = form.values
        if another:
            empty = {name: value for name, value in fields.items() if name.startswith(f"{another}-__prefix__-")}
            fields |= {name.replace("__prefix__", "0"): value for name, value in empty.items()}
            fields[f"{another}-TOTAL_FORMS"] = "1"
        assert set(values) <= fields.keys(), f"{path} has no {set(values) - fields.keys()}: {fields}"
        try:
            data = urlencode({**fields, **values}).encode()
            with self._opener.open(self.base + path, data, timeout=20) as answer:
                page: str = answer.read().decode()
        except HTTPError as error:
            pytest.fail(f"POST {path}: {error}\n{error.read().decode()[:2000]}")
        complaint = re.search(r'class="errornote">(.*?)</p>.*?(<ul class="errorlist".*?</ul>)', page, re.DOTALL)
        if complaint is not None:
            pytest.fail(f"{path} refused {values}: {complaint.group(0)}")
        return page
