"""The doors: bytes in, bytes out."""
