"""Make verdicts on the items of a response: None, or a BrokerError as a value. Pure.

One topic that cannot be deleted says nothing about the others.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import TypeVar

from clients.errors import BrokerError, KgroupError, left_out
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode

K = TypeVar("K")
T = TypeVar("T")

Verdicts = dict[K, ApiError | None]

MUTATION_QUOTA = "controller_mutation_rate"


def make_verdict(api_key: ApiKey, code: int, detail: str) -> BrokerError | None:
    """Return the error of one item in a response of an API; None for NONE."""
    return BrokerError(ErrorCode.of(code), detail, api_key) if code else None


def make_mutation_verdict(
    api_key: ApiKey, code: int, detail: str, throttle_time_ms: int
) -> BrokerError | None:
    """Do the same for a request that makes or deletes partitions, for which there is a quota.

    If that is used up the error names it, and the time after which to try again (KIP-599).
    """
    if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        later = f"in {ceil(throttle_time_ms / 1000)} s" if throttle_time_ms > 0 else "later"
        meaning = ErrorCode.THROTTLING_QUOTA_EXCEEDED.meaning.removesuffix(".")
        detail = f"{meaning}: {MUTATION_QUOTA}; try again {later}"
    return make_verdict(api_key, code, detail)


def raise_for(api_key: ApiKey, code: int, detail: str) -> None:
    """Raise BrokerError unless the code of a response of an API is NONE."""
    if code:
        raise BrokerError(ErrorCode.of(code), detail, api_key)


def unless_error(result: T | KgroupError) -> T:
    """Return the result. Raises it if it is an error."""
    if isinstance(result, KgroupError):
        raise result
    return result


def verdicts_of(items: Iterable[K], verdicts: Mapping[K, ApiError | None]) -> Verdicts[K]:
    """Return the verdict of each item of a request; an item that the response lacks has failed."""
    return {item: verdicts[item] if item in verdicts else left_out(item) for item in items}


def reject_non_controller(verdicts: Verdicts[K]) -> Verdicts[K]:
    """Return the verdicts. Raises BrokerError(NOT_CONTROLLER) if another broker answered."""
    for error in verdicts.values():
        if error is not None and error.code is ErrorCode.NOT_CONTROLLER:
            raise error
    return verdicts
