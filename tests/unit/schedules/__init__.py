"""Schedules: when they fire, how they become jobs, who fires them, and how people look at them."""
