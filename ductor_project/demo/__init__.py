"""A small host app: uploads, import jobs and the demonstration of the queue at work."""
