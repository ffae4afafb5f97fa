"""Accept connections, cut requests out of them, dispatch them, and send the responses.

Doors: `listener` accepts, `dispatch` has the contract of a handler, `purgatory` keeps requests that
wait, `deferred` runs work of a request in a thread.
"""
