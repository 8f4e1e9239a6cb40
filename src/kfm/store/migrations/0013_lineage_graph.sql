-- Lineage is derived from evidence: what an older kfm indexed says less, and is read again by `kfm upgrade`.
drop table lineage_edge;
delete from lineage;
create table lineage_node (id integer primary key, name text not null unique);
create table lineage_edge (
  source integer not null, kind text not null, target integer not null, at_ms integer not null, run_id text not null,
  primary key (source, kind, target)
) without rowid;
create index lineage_up on lineage_edge (target, kind, at_ms);
create index lineage_dataset on lineage (dataset_id, generation);
