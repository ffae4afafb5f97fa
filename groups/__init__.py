"""Who consumes what."""
