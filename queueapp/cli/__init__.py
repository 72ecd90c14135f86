"""The terminal: what the management commands do. The commands themselves only name the options."""
