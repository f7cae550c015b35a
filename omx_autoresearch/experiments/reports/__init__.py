"""The output of an experiment: report, plot, tables, export to MLflow. It reads the log alone.

Begin with ``pages`` (what a report says, and how it is written).
"""
