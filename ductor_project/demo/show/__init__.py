"""The demonstration itself, `manage.py demo`: its load, its processes, its figures. Start reading at `run`."""
