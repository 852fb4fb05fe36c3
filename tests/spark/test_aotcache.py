"""What Java learned in one run is used by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from umbel.errors import NotSupported
from umbel.spark import aot_cache
from umbel.spark.java import packaged

SCRIPT = """
import sys
from pathlib import Path
from umbel.spark.session import Settings, running
with running(Settings(Path(sys.argv[1]), slots=1)) as session:
    bean = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    print([each for each in bean.getInputArguments() if "AOTCache" in each], session.range(3).count())
"""


@pytest.mark.nightly
def test_a_cache_is_made_and_used(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "JAVA_HOME": str(packaged().home)}
    assert aot_cache.java_options(environment) == ""
    made = aot_cache.make(environment)
    assert made == aot_cache.location(environment)
    assert [each.name for each in made.parent.iterdir() if not each.name.startswith("java-")] == [made.name]
    report = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert report.stdout.strip() == f"['-XX:AOTCache={made}'] 3"
    assert "aot" not in report.stderr.lower()


def test_a_java_that_is_too_old_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    environment = {"JAVA_HOME": str(tmp_path)}
    assert aot_cache.location(environment) is None
    assert aot_cache.java_options(environment) == ""
    with pytest.raises(NotSupported, match="Java 21 keeps no classes"):
        aot_cache.make(environment)


def test_packages_installed_again_have_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java prints errors about a cache of older jars, at each start."""
    place = tmp_path / "pyspark"
    (place / "jars").mkdir(parents=True)
    jar = place / "jars" / "spark.jar"
    jar.write_bytes(b"1")
    monkeypatch.setattr("pyspark.__file__", str(place / "__init__.py"))
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAVA_HOME": str(packaged().home)}
    first = aot_cache.location(environment)
    assert first == aot_cache.location(environment)
    os.utime(jar, ns=(1, 1))
    second = aot_cache.location(environment)
    assert first is not None
    assert second is not None
    assert first != second
    assert first.name.split("-")[1] == second.name.split("-")[1]
