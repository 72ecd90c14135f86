"""`manage.py stack` under a name of our own, for hosts that have a command of that name."""

from queueapp.management.commands.stack import Command

__all__ = ["Command"]
