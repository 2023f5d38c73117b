"""The whole heart of redrive under one scheduler, with faults: docs/simulation.md says how."""
