"""The ledger: PostgreSQL tables next to the user's own, and the code that works with them."""
