create table generation (
  dataset_id text not null, generation integer not null, kind text not null, version_id text, version_digest text,
  run_id text not null, file_digest text not null, contents text not null, held text not null, suppressed text not null,
  primary key (dataset_id, generation)
) without rowid;
create table outbox (
  run_id text not null, dataset_id text not null, generation integer not null, payload text not null,
  state text not null check (state in ('waiting', 'delivered', 'dropped')), primary key (run_id, generation)
) without rowid;
create table lineage (run_id text primary key, dataset_id text not null, generation integer not null, record text not null) without rowid;
create table lineage_edge (
  source text not null, kind text not null, target text not null, run_id text not null, primary key (source, kind, target)
) without rowid;
create index lineage_target on lineage_edge (target, kind);
