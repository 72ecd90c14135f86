"""From a decorated function to a job in the store: tasks, tenants, transactions, sending, results."""
