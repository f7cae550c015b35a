"""One folder an agent CLI, which no other knows; what each owes stands in :mod:`omx_autoresearch.agents.registry`."""
