"""The use cases: load, look, decide, record, answer."""
