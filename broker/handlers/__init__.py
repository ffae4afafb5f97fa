"""One file per API, named as in protocol/messages."""
