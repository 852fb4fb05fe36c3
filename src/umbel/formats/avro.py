"""Avro messages with a schema id, as Confluent's serializers write them."""

from __future__ import annotations

import io
import json
from typing import Any

from umbel.formats.avro_shape import TOO_DEEP, AvroShape
from umbel.formats.avro_values import exact
from umbel.formats.registry import SchemaRegistry, framed


class AvroDecoder:
    """Decodes messages by the schema that wrote them.

    Args:
        schemas: of the messages.
    """

    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas, self._shapes = schemas, dict[int, AvroShape]()

    def decode(self, value: bytes) -> Any:
        """Return the record of a message.

        Raises:
            ValueError: it has no known schema, or does not fit it.
            Transient: the registry does not answer.
        """
        import fastavro

        number, content = framed(value)
        shape = self._shape(number)
        stream = io.BytesIO(content)
        try:
            if shape.can_expand and shape.walk(content, 0)[1]:
                raise ValueError(TOO_DEEP)
            found = fastavro.schemaless_reader(stream, shape.schema, None)
        except Exception as error:  # fastavro raises many kinds, for content alone
            raise ValueError(f"not readable with Avro schema {number}: {type(error).__name__}: {error}") from error
        if stream.tell() != len(content):
            raise ValueError(f"{len(content) - stream.tell()} bytes more than Avro schema {number} has")
        return found

    def _shape(self, number: int) -> AvroShape:
        from fastavro.schema import parse_schema

        if number not in self._shapes:
            registered, named = self._schemas.schema(number), dict[str, Any]()
            try:
                for text in registered.references.values():
                    parse_schema(exact(json.loads(text)), named)
                self._shapes[number] = AvroShape(parse_schema(exact(json.loads(registered.text)), named), named)
            except Exception as error:  # a registry may have anything, and fastavro raises many kinds
                raise ValueError(f"Avro schema {number} is not one: {type(error).__name__}: {error}") from error
        return self._shapes[number]
