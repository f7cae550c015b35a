"""What an experiment shows when it is over: report, plot, tables, export to MLflow. It reads the log alone.

Begin with ``facts`` (what a report says, as plain values).
"""
