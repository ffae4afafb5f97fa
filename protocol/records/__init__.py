"""Record formats: batches on the wire and on disk."""
