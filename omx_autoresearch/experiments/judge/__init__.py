"""The judge of experiments: pure and deterministic, used unchanged by the simulation in benchmarks/.

Begin with ``rule`` (how candidates are judged), then ``calibration`` (what the baseline says about the noise),
``sequential`` (the rule on interleaved pairs) and ``decision`` (one candidate's verdict).
"""
