"""Storage: the catalog (truth), the two legs derived from it, and the protocol that writes them together."""
