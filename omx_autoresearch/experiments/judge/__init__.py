"""The judge of experiments: pure and deterministic, used unchanged by the simulation in benchmarks/.

``decision.Judge`` decides whether a candidate is accepted, by the rule and the noise of the baseline that
``calibration`` has. ``state`` and ``events`` are what an experiment is, event by event.
"""
