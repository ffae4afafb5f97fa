"""Check that Spark's Python workers can run the source, before they fail to.

Spark starts workers with PYSPARK_PYTHON, else with the first `python3` of the PATH, which need not
be the driver's interpreter. A worker that cannot import a package reports that in a traceback on
the executor, or not at all.
"""

import shutil
import subprocess
import sys
from functools import cache

from pyspark import SparkContext

_NEEDED = f"attrs, crc32c, kazoo, pyarrow, {__package__}"
_PROBE_TIMEOUT_S = 60


def check_worker_python() -> None:
    """Try the workers' interpreter, if they run on this machine. Raises ImportError.

    Do nothing outside a driver: a worker that runs has an interpreter that works.
    """
    context = SparkContext._active_spark_context
    # Elsewhere the path names an interpreter of another machine.
    if context is not None and (context.master or "").startswith("local"):
        _check(context.pythonExec)


@cache
def _check(python: str) -> None:
    # The driver's own interpreter has imported all of it already.
    if shutil.which(python) == sys.executable:
        return

    # Try the import as a worker would.
    try:
        probe = subprocess.run(
            [python, "-c", f"import {_NEEDED}"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        if probe.returncode == 0:
            return
        # The last line of a traceback names the error.
        reason = (probe.stderr.strip().splitlines() or ["it ended early"])[-1]

    raise ImportError(
        f"Spark runs its workers with {python}, which cannot run the source ({reason}): set "
        f"PYSPARK_PYTHON={sys.executable} before the session starts, or there "
        "pip install 'kgroup[spark]'"
    )
