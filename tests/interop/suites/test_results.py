"""What runners of tests write, as it is read here."""

from __future__ import annotations

from pathlib import Path

from tests.interop.suites.go_tests import select
from tests.interop.suites.suite import Outcome, read_cargo, read_go, read_junit

PASSED, FAILED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED

GO = """\
=== RUN   TestA
=== RUN   TestA/one
--- FAIL: TestA (0.02s)
    a_test.go:12: no
    --- FAIL: TestA/one (0.01s)
=== RUN   TestB
--- PASS: TestB (1.00s)
=== RUN   TestC
--- SKIP: TestC (0.00s)
=== RUN   TestD
panic: test timed out after 40m0s
"""

CARGO = """\
running 3 tests
test test_groups ... ok
test test_configs ... FAILED
test tests::test_topics ... ignored

failures:

---- test_configs stdout ----
"""

JUNIT = """\
<testsuites><testsuite name="pytest">
<testcase classname="test.integration.test_admin" name="test_acls" time="0.1" />
<testcase classname="test.integration.test_admin" name="test_configs[1]"><failure /></testcase>
<testcase classname="test.integration.test_admin" name="test_quorum"><skipped /></testcase>
<testcase classname="test.integration.test_admin" name="test_groups"><error /></testcase>
</testsuite></testsuites>
"""


def test_of_tests_in_go_one_that_never_ended_has_failed_and_parts_speak_for_the_whole() -> None:
    assert read_go(GO) == {
        "TestA/one": FAILED,
        "TestB": PASSED,
        "TestC": SKIPPED,
        "TestD": FAILED,
    }


def test_tests_of_a_crate_are_read() -> None:
    assert read_cargo(CARGO) == {
        "test_groups": PASSED,
        "test_configs": FAILED,
        "tests::test_topics": SKIPPED,
    }


def test_report_of_pytest_is_read(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(JUNIT)

    assert read_junit(report) == {
        "test_admin::test_acls": PASSED,
        "test_admin::test_configs[1]": FAILED,
        "test_admin::test_quorum": SKIPPED,
        "test_admin::test_groups": FAILED,
    }


def test_parts_of_a_test_are_run_again_with_it() -> None:
    assert select(["TestA/one", "TestA/two", "TestB"], "^Test") == "^(TestA|TestB)$"
    assert select([], "^TestFunc") == "^TestFunc"
