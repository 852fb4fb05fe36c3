"""Worker processes: order, limits, and one bad record that costs no other."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from umbel.errors import Terminal
from umbel.isolation.function_limits import FunctionLimits
from umbel.isolation.process import ForkServer
from umbel.transform.configuration import loads
from umbel.transform.parts import Lines
from umbel.transform.work import runner
from umbel.transform.workers import MODULES, TransformWorkers

COPY = "source_field: a\ntarget_field: b\n"
CODE = """source_field: a
target_field: b
transformations:
  - name: custom_code
    code: |
      import os
      if source_field == "loop":
          while True: pass
      if source_field == "exit":
          raise SystemExit(3)
      if source_field == "die":
          os._exit(7)
      if source_field == "eat":
          return len(bytearray(1 << 40))
      if source_field == "raise":
          return 1 / 0
      return source_field
"""
LIMITS = FunctionLimits(row_seconds=0.5, batch_seconds=1.0, memory=256)


def test_a_record_that_ends_its_process_costs_no_other() -> None:
    values = ["x", "loop", "y", "exit", "die", "", "eat", "raise", "z"]
    lines = b"\n".join(b"" if each == "" else json.dumps({"a": each}).encode() for each in values)
    with TransformWorkers(loads(CODE, "c.yaml"), 1, LIMITS) as workers:
        (done,) = workers.results([Lines("in", lines)])
    assert done.data == b'{"b":"x"}\n{"b":"y"}\n{"b":"z"}\n'
    found = {json.loads(each.record)["a"]: (each.row, each.step, each.error, each.at) for each in done.letters}
    assert found["loop"] == (1, "custom_code", "LimitExceeded", "")
    assert found["exit"] == (3, "custom_code", "SystemExit", "c.yaml:10")
    assert found["die"][:3] == (4, "custom_code", "LimitExceeded")
    assert found["raise"] == (7, "custom_code", "ZeroDivisionError", "c.yaml:16")
    assert found["eat"][0] == 6
    assert (done.records, done.written, done.lines) == (8, 3, 9)


def test_a_record_whose_process_others_kill_is_tried_again(tmp_path: Path) -> None:
    code = f"""
source_field: a
target_field: b
transformations:
  - name: custom_code
    code: |
      import os
      with open("{tmp_path}/calls", "a") as file:
          file.write(source_field)
      if os.path.getsize("{tmp_path}/calls") <= 2:
          os.kill(os.getpid(), 9)
      return source_field
"""
    with TransformWorkers(loads(code, "c.yaml"), 1, LIMITS) as workers:
        (done,) = workers.results([Lines("in", b'{"a":"x"}\n{"a":"y"}\n')])
    assert (done.data, done.letters) == (b'{"b":"x"}\n{"b":"y"}\n', [])


def test_results_come_in_the_order_of_the_parts() -> None:
    text = "source_field: a\ntarget_field: b"
    parts = [Lines("in", json.dumps({"a": number}).encode()) for number in range(40)]
    with TransformWorkers(loads(text), 3) as workers:
        found = [json.loads(each.data)["b"] for each in workers.results(parts)]
    assert found == list(range(40))


def test_a_step_that_must_not_fail_ends_the_run() -> None:
    text = "source_field: a\ntarget_field: b\ntransformations:\n  - {name: lower, on_error: fail}"
    with TransformWorkers(loads(text, "c.yaml"), 1) as workers, pytest.raises(Terminal, match=r"TypeError.*c\.yaml:4"):
        list(workers.results([Lines("in", b'{"a":1}\n')]))


def test_workers_read_ranges_of_files_themselves(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_bytes(b'{"a":1}\n{"a":2}\n{"a":3}')
    text = "source_field: a\ntarget_field: b"
    with TransformWorkers(loads(text), 2) as workers:
        parts = [Lines("in", path=str(file), begin=0, end=8), Lines("in", path=str(file), begin=8, end=23)]
        assert [each.data for each in workers.results(parts)] == [b'{"b":1}\n', b'{"b":2}\n{"b":3}\n']


def test_many_configurations_start_a_process_each(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = list[ForkServer]()
    fork = ForkServer.fork

    def counted(server: ForkServer) -> tuple[int, socket.socket]:
        forks.append(server)
        return fork(server)

    monkeypatch.setattr(ForkServer, "fork", counted)
    text = COPY + "transformations: [{{name: custom_code, code: 'return {}'}}]"
    for _ in range(2):
        for number in range(10):
            done = runner(text.format(number), "many.yaml")(Lines("in", b'{"a":1}'))
            assert done.data == b'{"b":%d}\n' % number
    assert len(forks) == 10
    assert len(set(forks)) == 1
    runner.cache_clear()


def test_a_worker_does_without_numpy() -> None:
    """It is a tenth of the memory of `umbel transform`."""
    code = f"""
import importlib, sys
for name in {MODULES!r}:
    importlib.import_module(name)
from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import load
BatchTransform(load("benchmarks/transform.yaml"))([b'{{"properties": {{"config_name": "A"}}, "sent_at": "x"}}'] * 3)
sys.exit("numpy" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
