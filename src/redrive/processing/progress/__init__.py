"""Progress: which offsets are complete, and the text that is committed with them."""
