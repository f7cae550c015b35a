"""The rules: pure functions over records. No I/O, no clock, no randomness; time and ids come in as arguments."""
