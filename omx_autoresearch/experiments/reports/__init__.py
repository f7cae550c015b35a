"""What an experiment shows when it is over: report, plot, tables, export to MLflow. It reads the log alone.

Begin with ``pages`` (what a report says, and how it is written).
"""
