"""Verbs of `manage.py ductor` about flows, registered in `queueapp.extensions.verbs`."""
