"""Iceberg's own library of Java, on a virtual machine of its own: writes tables as Flink and Spark do, and reads them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

from tests.jars import fetched, java
from tests.servers.missing import missing

Values = Sequence[Any]


class JavaTable:
    """A table in a folder, with the columns `id`, an integer, and `note`, a text.

    Args:
        gateway: to the virtual machine.
        folder: of the table.
    """

    def __init__(self, gateway: Any, folder: Path) -> None:
        self.folder, self._gateway, self._iceberg, self._files = folder, gateway, gateway.jvm.org.apache.iceberg, 0
        types = self._iceberg.types.Types
        columns = [("id", types.IntegerType.get()), ("note", types.StringType.get())]
        fields = [types.NestedField.optional(number, *each) for number, each in enumerate(columns, 1)]
        properties = gateway.jvm.java.util.HashMap()
        properties.put("format-version", "2")
        tables = self._iceberg.hadoop.HadoopTables(gateway.jvm.org.apache.hadoop.conf.Configuration())
        plain = self._iceberg.PartitionSpec.unpartitioned()
        self.java = tables.create(self._iceberg.Schema(self._list(fields)), plain, properties, str(folder))

    def data(self, rows: Sequence[Values], spec: Any = None, partition: Any = None) -> Any:
        """Write a data file."""
        spec = spec or self.java.spec()
        factory = self._iceberg.data.GenericAppenderFactory(self.java.schema(), spec)
        writer = factory.newDataWriter(self._output(), self._parquet, partition)
        return self._written(writer, self.java.schema(), rows).toDataFile()

    def equality(self, rows: Sequence[Values], names: Sequence[str], spec: Any = None, partition: Any = None) -> Any:
        """Write a file of deleted values of some columns."""
        fields = [self.java.schema().findField(each) for each in names]
        schema, ids = (
            self._iceberg.Schema(self._list(fields)),
            self._gateway.new_array(self._gateway.jvm.int, len(names)),
        )
        for index, each in enumerate(fields):
            ids[index] = each.fieldId()
        spec = spec or self.java.spec()
        factory = self._iceberg.data.GenericAppenderFactory(self.java.schema(), spec, ids, schema, None)
        writer = factory.newEqDeleteWriter(self._output(), self._parquet, partition)
        return self._written(writer, schema, rows).toDeleteFile()

    def positions(self, places: Sequence[tuple[str, int]], spec: Any = None, partition: Any = None) -> Any:
        """Write a file of deleted positions."""
        factory = self._iceberg.data.GenericAppenderFactory(self.java.schema(), spec or self.java.spec())
        writer = factory.newPosDeleteWriter(self._output(), self._parquet, partition)
        for path, position in sorted(places):
            delete = self._iceberg.deletes.PositionDelete.create()
            writer.write(delete.set(path, position))
        writer.close()
        return writer.toDeleteFile()

    def commit(self, data: Sequence[Any], deletes: Sequence[Any]) -> None:
        """Commit files of rows and of deletes in one snapshot."""
        delta = self.java.newRowDelta()
        for each in data:
            delta.addRows(each)
        for each in deletes:
            delta.addDeletes(each)
        delta.commit()

    def partition(self, spec: Any, value: str) -> Any:
        """Return the partition of a spec by one text."""
        made = self._iceberg.PartitionData(spec.partitionType())
        made.set(0, value)
        return made

    def rows(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return columns of the rows, as the library reads them."""
        self.java.refresh()
        found = list[tuple[Any, ...]]()
        iterator = self._iceberg.data.IcebergGenerics.read(self.java).build().iterator()
        while iterator.hasNext():
            record = iterator.next()
            found.append(tuple(record.getField(each) for each in names))
        return sorted(found, key=repr)

    @property
    def _parquet(self) -> Any:
        return self._iceberg.FileFormat.PARQUET

    def _output(self) -> Any:
        self._files += 1
        file = self.java.io().newOutputFile(f"{self.folder}/data/{self._files}.parquet")
        return self._iceberg.encryption.EncryptedFiles.encryptedOutput(
            file, self._iceberg.encryption.EncryptionKeyMetadata.EMPTY
        )

    def _written(self, writer: Any, schema: Any, rows: Sequence[Values]) -> Any:
        names = [each.name() for each in schema.columns()]
        for row in rows:
            record = self._iceberg.data.GenericRecord.create(schema)
            for name, value in zip(names, row, strict=True):
                record.setField(name, value)
            writer.write(record)
        writer.close()
        return writer

    def _list(self, values: Sequence[Any]) -> Any:
        made = self._gateway.jvm.java.util.ArrayList()
        for each in values:
            made.add(each)
        return made


@contextmanager
def running() -> Iterator[Any]:
    """Run the virtual machine for a block; where it cannot be had, fail in CI, and elsewhere skip."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    spark = Path(spec.origin).parent / "jars"
    try:
        (jar,) = fetched(Path(__file__).with_suffix(".xml")).glob("*.jar")
        (py4j,) = spark.glob("py4j*.jar")
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.nio", "sun.nio.ch")]
        gateway = JavaGateway.launch_gateway(
            jarpath=str(py4j),
            classpath=f"{jar}:{spark}/*",
            java_path=java(),
            javaopts=opened,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL,
            die_on_exit=True,
        )
    except (OSError, ValueError) as error:
        missing("Iceberg's library of Java", f"it cannot be had: {error}", "let this machine reach a Maven server")
    try:
        yield gateway
    finally:
        gateway.shutdown()
