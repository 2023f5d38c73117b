"""The pure heart: which records run, in which order, and what may be committed.

Nothing here knows Kafka, Spark or a database, and the time is always an argument.
"""
