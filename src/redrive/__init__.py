"""Reliable Kafka consumption in Python, on Spark and off it."""
