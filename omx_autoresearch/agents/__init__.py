"""One dialect module for each agent CLI."""
