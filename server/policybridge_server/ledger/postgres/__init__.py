"""The ledger `postgresql`: a database that many servers write.

A server's records go into its spool first, a file on its own disk (`policybridge_server.ledger.spool`). A thread
sends it from there to the database, many records in one transaction, which also stores the number of its last
batch. So each batch is in the database once, even if the connection, the database or the server ends. An outcome is
acknowledged when it is in the database or, while the database is away, when it is in the spool.
"""
