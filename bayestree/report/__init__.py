"""Pages and texts that a person reads."""
