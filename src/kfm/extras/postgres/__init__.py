"""The store on a PostgreSQL server, for many machines; needs the extra `postgres`.

`store.PostgresStore` keeps the promise of `kfm.store.base`; `dialect` says its queries and
migrations in the server's words. Nothing else of kfm knows psycopg.
"""
