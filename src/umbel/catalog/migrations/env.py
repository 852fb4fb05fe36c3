"""The alembic environment: run the catalog's migrations over the provided connection."""

from __future__ import annotations

from alembic import context

from umbel.catalog.tables import CatalogRow

context.configure(connection=context.config.attributes["connection"], target_metadata=CatalogRow.metadata)
with context.begin_transaction():
    context.run_migrations()
