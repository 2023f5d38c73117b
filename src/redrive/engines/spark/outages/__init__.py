"""Outages of what handlers depend on, on Spark: tasks hold records and tell, planners decide."""
