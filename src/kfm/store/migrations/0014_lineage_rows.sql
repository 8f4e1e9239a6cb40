-- Half the room for what runs tell: a record lies in one page, an edge knows its run by its number, and whose part a file is is in the file's name.
create table lineage_kept (run_id text not null primary key, dataset_id text not null, generation integer not null, record text not null);
insert into lineage_kept (run_id, dataset_id, generation, record) select run_id, dataset_id, generation, record from lineage order by run_id;
create table lineage_step (
  source integer not null, kind text not null, target integer not null, at_ms integer not null, run integer not null,
  primary key (source, kind, target)
) without rowid;
insert into lineage_step (source, kind, target, at_ms, run)
select e.source, e.kind, e.target, e.at_ms, n.id from lineage_edge as e join lineage_node as n on n.name = 'run:' || e.run_id where e.kind <> 'HAS_PART';
drop table lineage;
drop table lineage_edge;
alter table lineage_kept rename to lineage;
alter table lineage_step rename to lineage_edge;
create index lineage_dataset on lineage (dataset_id, generation);
create index lineage_up on lineage_edge (target, kind, at_ms);
