"""Kafka Connect from its jars: with Debezium, which the relay is compared with, or with a sink."""
