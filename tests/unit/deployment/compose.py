"""What the tests of image and compose file share: the files, read as Docker would, and the shape that they must have.

The schema is our own: the part of the Compose specification that the file uses, closed, so that a misspelt key, which
Docker may pass over in silence on another machine, is a failure here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")

SECRETS = ("SECRET_KEY", "DATABASE_PASSWORD", "STORE_PASSWORD")

_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DURATION = {"type": "string", "pattern": r"^(\d+h)?(\d+m)?(\d+s)?$", "minLength": 2}
_RESTART = {"enum": ["no", "always", "on-failure", "unless-stopped"]}
_CONDITIONS = ["service_started", "service_healthy", "service_completed_successfully"]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["services", "volumes"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "services": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]+$"},
            "additionalProperties": {
                "type": "object",
                "required": ["image", "restart"],
                "additionalProperties": False,
                "properties": {
                    "image": {"type": "string", "pattern": r"^[a-z0-9./-]+:[a-z0-9.-]+$"},
                    "build": {"const": "."},
                    "restart": _RESTART,
                    "command": _TEXTS,
                    "environment": {
                        "type": "object",
                        "propertyNames": {"pattern": "^[A-Z_]+$"},
                        "additionalProperties": {"type": "string"},
                    },
                    "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
                    "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[^:]+:/[^:]*(:ro)?$"}},
                    "tmpfs": _TEXTS,
                    "depends_on": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "required": ["condition"],
                            "additionalProperties": False,
                            "properties": {"condition": {"enum": _CONDITIONS}},
                        },
                    },
                    "healthcheck": {
                        "type": "object",
                        "required": ["test", "interval", "timeout", "retries"],
                        "additionalProperties": False,
                        "properties": {
                            "test": {**_TEXTS, "prefixItems": [{"const": "CMD"}], "minItems": 2},
                            "interval": _DURATION,
                            "timeout": _DURATION,
                            "retries": {"type": "integer", "minimum": 1},
                            "start_period": _DURATION,
                        },
                    },
                    "deploy": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {"replicas": {"type": "integer", "minimum": 1}},
                    },
                    "stop_grace_period": _DURATION,
                    "init": {"type": "boolean"},
                    "read_only": {"type": "boolean"},
                    "cap_drop": _TEXTS,
                    "security_opt": _TEXTS,
                },
            },
        },
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
    },
}


def text() -> str:
    return (ROOT / "docker-compose.yml").read_text()


def interpolated(environment: dict[str, str]) -> dict[str, Any]:
    """The compose file as Compose reads it under these variables; ValueError for one that is required and missing."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if given := environment.get(name):
            return given
        if kind == "?":
            raise ValueError(f"{name}: {rest}")
        return rest or ""

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: walk(child) for key, child in node.items()}
        if isinstance(node, list):
            return [walk(child) for child in node]
        return VARIABLE.sub(value, node) if isinstance(node, str) else node

    loaded: dict[str, Any] = walk(yaml.safe_load(text()))
    return loaded


def example() -> dict[str, str]:
    """The variables of `.env.example`."""
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled() -> dict[str, str]:
    """The same with its secrets filled in."""
    return {**example(), **{name: f"{name.lower().replace('_', '')}0123" for name in SECRETS}}


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest) of the Dockerfile, continued lines joined."""
    joined = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines]


def stages() -> list[list[tuple[str, str]]]:
    """The Dockerfile's instructions, stage by stage."""
    found: list[list[tuple[str, str]]] = []
    for instruction, rest in instructions():
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, rest))
    return found


def image_command() -> list[str]:
    """What the image runs when nobody says otherwise."""
    command: list[str] = json.loads(dict(stages()[-1])["CMD"])
    return command
