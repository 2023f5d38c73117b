"""Everything that touches librdkafka. No handle is made at import: Spark's workers fork."""
