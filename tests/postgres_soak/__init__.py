"""PostgreSQL under servers: stopped and killed, while compilers ask."""
