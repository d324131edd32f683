# SPDX-License-Identifier: Apache-2.0
"""What both ends of the radio say when a test fails."""
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    bed = item.funcargs.get("bed")
    # not while the bed is made or removed
    if report.failed and report.when == "call" and bed:
        report.sections.append(("the bed", bed.state()))
