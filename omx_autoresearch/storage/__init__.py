"""The journal on disk and what is derived from it."""
