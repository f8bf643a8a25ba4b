"""What a policy or a store is worth on a corpus, beside the compiler's own decisions."""
