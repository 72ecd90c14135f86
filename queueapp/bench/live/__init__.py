"""Workloads in earnest: sent at their planned moments to workers that really run them, and recorded from live pools."""
