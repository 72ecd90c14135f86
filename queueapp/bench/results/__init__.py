"""What laboratory runs leave behind: `results/<run>/`, written, read, merged and compared. Pure but for the files."""
