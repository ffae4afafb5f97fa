"""One file per API: its request, its response and the response that carries an error."""
