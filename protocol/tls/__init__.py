"""TLS for brokers and clients: stores of keys, names in certificates, contexts, and the layer that
encrypts a connection (`transport`)."""
