"""The ledger `postgresql`: a database that many servers write.

What a server records goes into its spool first, a file on its own disk (`policybridge_server.ledger.spool`). A thread
sends it from there to the database, many records in one transaction, and the transaction also says up to which batch it
came. So each batch is in the database once, whenever the connection, the database or the server ends. An outcome is
acknowledged when it is in the database or, while the database is away, when it is in the spool.
"""
