"""For testing handlers: an in-memory broker and a virtual clock.

`Simulation` runs an app through hours of retries in milliseconds; `redrive.testing.fixtures` is a
pytest plugin for tests against a real Kafka and PostgreSQL.
"""

from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.simulation import Attempt, Kept, Simulation
from redrive.testing.virtual_clock import VirtualClock

__all__ = ["Attempt", "Kept", "MemoryBroker", "Simulation", "VirtualClock"]
