"""Everything that touches librdkafka. No handle is created at import: Spark's workers fork."""
