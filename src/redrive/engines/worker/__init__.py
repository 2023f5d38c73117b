"""The worker engine: a process of the app's consumer group."""
