"""Natural-gradient variational inference, of several trees at once."""
