"""The scheduler: what time sets off, and the lease of leadership. Start reading at `leadership`."""
