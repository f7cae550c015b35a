"""The judge of experiments: pure and deterministic, used unchanged by the simulation in benchmarks/.

Begin with ``calibration`` (the rule, and what the baseline says about the noise), then ``decision`` (the sequential
rule and one candidate's verdict) and ``state`` (what an experiment is, event by event).
"""
