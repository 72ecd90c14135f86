"""`manage.py scheduler` under a name of our own, for hosts that have a command of that name."""

from queueapp.management.commands.scheduler import Command

__all__ = ["Command"]
