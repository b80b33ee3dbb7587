"""The schema: numbered migrations, applied once each, all in one transaction under a lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Final

import asyncpg

from chunkstore.adapters.postgres import queries
from chunkstore.adapters.postgres.pool import Database, Transaction
from chunkstore.domain.errors import InvalidFieldError, StoreMismatchError
from chunkstore.domain.similarity import MAX_DIMENSION

# A page holds 8,160 bytes of a row: beside a vector of this width, whatever else cannot move to the TOAST table fits.
_WIDEST_INLINE: Final = 1_700
_FILE_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of `migrations/`."""

    number: int
    name: str
    template: str

    def sql(self, dimension: int) -> str:
        """Its statements for vectors of a width."""
        return Template(self.template).substitute(dimension=dimension, storage=vector_storage(dimension))


def vector_storage(dimension: int) -> str:
    """PLAIN where a row with such a vector fits a page, else EXTERNAL (out of line, not compressed)."""
    return "PLAIN" if dimension <= _WIDEST_INLINE else "EXTERNAL"


def check_dimension(dimension: int) -> None:
    """Raise InvalidFieldError for a width that pgvector does not have."""
    if not 1 <= dimension <= MAX_DIMENSION:
        raise InvalidFieldError("dimension", f"must be within [1, {MAX_DIMENSION}]")


def migration_sql(dimension: int) -> str:
    """Every migration as one script, for a migration repository of one's own; run it in one transaction.

    It also notes what it applied, so that `ensure_schema` has nothing left to do. Raises InvalidFieldError for a
    dimension that pgvector does not have.
    """
    check_dimension(dimension)
    return "\n".join(f"{migration.sql(dimension)}\n{_note(migration)}\n" for migration in migrations())


async def ensure_schema(database: Database, dimension: int) -> None:
    """Apply the migrations that are missing. Idempotent, safe to run at once from many processes.

    Tables that exist already, made by hand or by an older version, get the columns they lack. Raises
    InvalidFieldError for a dimension that pgvector does not have, StoreMismatchError where the server lacks pgvector
    or the database does not store UTF-8.
    """
    check_dimension(dimension)
    async with database.transaction(queries.BEGIN_READ) as transaction:
        if not await _missing(transaction):
            return
    async with database.transaction(queries.BEGIN_MIGRATION) as transaction:
        if await transaction.fetch_value("SHOW server_encoding") != "UTF8":
            raise StoreMismatchError("the database does not store UTF-8: create one with ENCODING 'UTF8'")
        for migration in await _missing(transaction):
            try:
                await transaction.execute(migration.sql(dimension))
            except (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFileError) as error:
                raise StoreMismatchError(
                    "the PostgreSQL server lacks the extension vector: install pgvector"
                ) from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise StoreMismatchError(
                    "the role may not bring the schema up to date: run `chunkstore migrate` with one that may create "
                    "the extension vector and the schema chunkstore"
                ) from error
            await transaction.execute(_note(migration))


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations by number."""
    found = []
    for file in resources.files(__package__).joinpath("migrations").iterdir():
        if match := _FILE_NAME.fullmatch(file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


async def _missing(transaction: Transaction) -> list[Migration]:
    if await transaction.fetch_value(queries.MIGRATIONS_TABLE) is None:
        return list(migrations())
    applied = {row["number"] for row in await transaction.fetch(queries.APPLIED_MIGRATIONS)}
    return [migration for migration in migrations() if migration.number not in applied]


def _note(migration: Migration) -> str:
    return (
        "INSERT INTO chunkstore.schema_migrations (number, name) "  # noqa: S608 - both from the file's checked name
        f"VALUES ({migration.number}, '{migration.name}') ON CONFLICT DO NOTHING;"
    )
