"""Dead letters on Spark: for millions of them."""
