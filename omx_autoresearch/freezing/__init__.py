"""Freezing the evaluator: find its files, pin them, compare them later, and restore them.

The room reads a workspace and writes frozen copies into a state folder; only ``restore`` writes into a workspace.
Begin with ``discovery.find``, which answers with a manifest; ``pins.pin`` keeps its files, ``pins.compare`` checks them
and ``restoration.restore`` puts them back. ``tree`` digests a work tree, to tell whether a verdict is still fresh.
"""
