"""The ledger: PostgreSQL tables beside the user's own, and what is done with them."""
