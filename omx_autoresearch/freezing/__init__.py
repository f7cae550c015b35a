"""Freezing the evaluator: find its files, pin them, compare them later, and restore them.

The room reads a workspace and writes frozen copies into a state folder; only ``restore`` writes into a workspace.
Begin with ``discovery.find``, which answers with a manifest; ``pins.pin`` keeps its files, ``pins.compare`` checks them
and ``restoration.restore`` puts them back. ``tree`` digests a work tree, to tell whether a verdict is still fresh.

What judges is found by what commands and scripts name (``evaluator_commands``, ``makefiles``, ``folders``), what a
runner loads (``manifest``, ``packages``, ``import_path``, ``inline_tests``), what git answers (``git_answers``), what
pinned files read (``readings``, ``judging``) and what a baseline opened (``opened``); ``work`` is what the owner leaves
free.
"""
