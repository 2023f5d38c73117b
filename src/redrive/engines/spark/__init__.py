"""The data pipeline: PySpark Structured Streaming, from a laptop to a cluster."""
