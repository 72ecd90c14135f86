"""Metrics pages and probes: on the site (`urls`), and of worker, scheduler and stack (`listener`)."""
