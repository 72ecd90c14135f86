"""The worker: leases jobs, runs their bodies, reports what became of them. Start reading at `attempt.run_one`."""
