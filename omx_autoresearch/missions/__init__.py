"""Missions: their contracts, their evidence, and how an agent is held until the contract is met.

Every use case has the same beats: load, look, decide, record, answer. ``rules/`` decides and touches no world; the
modules beside it read the workspace, run the contract's commands, and write the journal and ``.omx``. Begin with
``stop`` (one stop from the look to the answer), then ``rules/gate`` (the decision) and ``store`` (the records).
"""
