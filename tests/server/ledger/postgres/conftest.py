"""One PostgreSQL for all tests, and a database for each."""

from tests.postgresql import installed_postgres, postgres

__all__ = ["installed_postgres", "postgres"]
