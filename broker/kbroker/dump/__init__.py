"""`kbroker dump` prints log files and indexes as text."""
