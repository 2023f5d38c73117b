"""Fixtures for tests against a real Kafka and PostgreSQL (filled in with the local stack)."""
