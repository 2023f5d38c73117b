"""Debezium on Kafka Connect, from the ordinary jars: what the relay is compared with."""
