"""What an engine for Cypher that wants tables is told before lineage is loaded into it."""

__all__ = ["TABLES"]

TOLD = (
    "dataset_id STRING, hash STRING, version STRING, created_at STRING, generation INT64, stac_id STRING, sensitivity STRING,"
    " policy_label STRING, care_label STRING, licence STRING, obligations STRING[], discharged STRING[], h3_resolution INT64"
)
TABLES = (
    "CREATE NODE TABLE Run(id STRING PRIMARY KEY, dataset_id STRING, updater_id STRING, version STRING, started_at STRING,"
    " trigger_type STRING, wal_id STRING, generation INT64)",
    f"CREATE NODE TABLE Dataset(key STRING PRIMARY KEY, kind STRING, path STRING, {TOLD})",
    f"CREATE NODE TABLE DatasetVersion(key STRING PRIMARY KEY, {TOLD})",
    "CREATE NODE TABLE Asset(id SERIAL PRIMARY KEY, uri STRING, hash STRING, first_seen_at STRING)",
    "CREATE REL TABLE GENERATED(FROM Run TO DatasetVersion, FROM Run TO Dataset)",
    "CREATE REL TABLE HAS_PART(FROM DatasetVersion TO Dataset)",
    "CREATE REL TABLE SUPERSEDES(FROM DatasetVersion TO DatasetVersion)",
    "CREATE REL TABLE USED_IN(FROM Asset TO Run, FROM DatasetVersion TO Run)",
)
