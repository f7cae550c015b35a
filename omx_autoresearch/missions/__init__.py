"""Missions: what was asked, what completes it, and how an agent is held to it.

Every use case has the same beats: load, look, decide, record, answer. ``rules/`` decides and touches no world. Begin
with ``stop`` (one stop from the look to the answer), then ``rules/gate`` (the decision) and ``store`` (the records).
"""
