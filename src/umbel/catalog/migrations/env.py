"""How alembic runs the catalog's migrations: over the connection it is given."""

from __future__ import annotations

from alembic import context

from umbel.catalog.tables import Table

context.configure(connection=context.config.attributes["connection"], target_metadata=Table.metadata)
with context.begin_transaction():
    context.run_migrations()
