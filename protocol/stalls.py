"""What a process may say of others after it has stood still itself.

After SIGSTOP, a suspended machine or a long turn of the loop all timers are due at once, before
anything is read that others have sent meanwhile. Who judges silence waits once more: what lies in
the sockets is read within that time.
"""

STALL_S = 1.0
"""A timer that rings later than this has rung in a process that stood still."""
PUT_OFF_S = 1.0
"""The time to read what was sent meanwhile, before silence counts."""
