"""The failure of a member at a coordinator."""

from protocol.errors import ErrorCode, KgroupError


class MemberFailed(KgroupError):
    """The coordinator refuses this member for good: its place is taken, or it may not join."""

    def __init__(self, error: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.error = error
