"""Deliveries: how outcomes become durable, and when progress may be committed.

Five words, made of two parts each: a store (none, inbox, outbox, both) and a publisher (flush, or
Kafka transaction).
"""
