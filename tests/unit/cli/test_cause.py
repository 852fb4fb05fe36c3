"""The cause in the text of a Spark exception."""

from __future__ import annotations

import pytest

from umbel.cli.work import cause_in

STALE = """the state of operator fabc is at batch 5; batch 3 came before it
  hint: the checkpoint and the store do not belong together"""
PROXY = f"""An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "umbel/state/runs/memtable.py", line 130, in must_accept
    raise StaleBatch(
umbel.state.port.StaleBatch: {STALE}

=== Streaming Query ===
Identifier: live [id = aa, runId = 9d]
Current Available Offsets: {{PythonMicroBatchStreamWithAdmissionControl@6d292773: {{"plan": 4}}}}

Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink
"""
TASK = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "umbel/spark/job.py", line 108, in _batch
    self._run_batch(number)
py4j.protocol.Py4JJavaError: An error occurred while calling o99.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "umbel/state/disk.py", line 38, in sync
    os.fdatasync(file)
OSError: [Errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)
\tat java.base/java.lang.Thread.run(Thread.java:1583)

=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (PROXY, f"StaleBatch: {STALE}"),
        (TASK, "OSError: [Errno 28] No space left on device"),
        ("the streaming query has ended", "the streaming query has ended"),
        ("[CONCURRENT_QUERY] another one\n\n=== Streaming Query ===\nx", "[CONCURRENT_QUERY] another one"),
        ("Traceback (most recent call last):\n  File x, cut off", "File x, cut off"),
        ("", ""),
    ],
)
def test_cause(text: str, cause: str) -> None:
    assert cause_in(text) == cause
