create table meta (key text primary key, value text not null);
create table lease (
  name text primary key, epoch integer not null, token integer not null,
  holder text, boot_id text not null default '', expires_ns integer not null default 0
);
create table job (
  job_id text primary key, job_type text not null, dataset_id text not null, partition text not null, win text not null,
  state text not null check (state in ('queued', 'running', 'ended')), again integer not null, forced integer not null,
  generation integer not null, reason text not null default '', put_at text not null
);
create table ledger (
  run_id text primary key, wal_id text not null, dataset_id text not null, partition text not null, win text not null,
  state text not null, key text not null, timestamp text not null, source_metadata text not null,
  pipeline_version text not null, updater_id text not null, updater_version text not null, spec_hash text not null,
  transform_hash text not null, input_hash text not null, toolchain_digest text not null, attempt integer not null,
  forced integer not null, trigger_type text not null, base_version text, base_generation integer not null,
  pinned integer, part text, version_id text, version_digest text, content_id text, intent integer,
  promo integer not null, reason text not null, ended_at text, rows_read integer not null, rows_written integer not null,
  error_count integer not null, latency_ms integer, freshness_minutes integer, archived integer not null, sum text not null
);
create index ledger_open on ledger (dataset_id, partition) where state in ('CLAIMED', 'PROPOSED');
create index ledger_unarchived on ledger (dataset_id) where ended_at is not null and archived = 0;
create index ledger_dataset on ledger (dataset_id, run_id);
create index ledger_tuple on ledger (dataset_id, partition, spec_hash, input_hash);
create table journal (
  wal_id text not null, seq integer not null, phase text not null, step_id text not null, updater_id text not null,
  updater_version text not null, input_hash text not null, payload text not null, status text not null, ts text not null,
  prev text not null, hash text not null, primary key (wal_id, seq)
) without rowid;
create table plan (identity text primary key, plan_hash text not null, plan text not null) without rowid;
