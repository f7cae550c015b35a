"""Measurements, each its own command: ratios taken in one interleaved run, never a timed test."""
