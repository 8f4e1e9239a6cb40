-- name: lineage_put_all
insert into lineage (run_id, dataset_id, generation, record)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), cast(json_extract(value, '$[2]') as bigint), json_extract(value, '$[3]')
from json_each(:rows) where true on conflict (run_id) do nothing
-- name: lineage_node_put_all
insert into lineage_node (name) select value from json_each(:names) as texts where true on conflict (name) do nothing
returning id, name
-- name: lineage_edge_put_all
insert into lineage_edge (source, kind, target, at_ms, run)
select cast(json_extract(value, '$[0]') as bigint), json_extract(value, '$[1]'), cast(json_extract(value, '$[2]') as bigint),
  cast(json_extract(value, '$[3]') as bigint), cast(json_extract(value, '$[4]') as bigint)
from json_each(:edges) where true on conflict (source, kind, target) do nothing
-- name: lineage_ids
select n.id, n.name from json_each(:names) as texts join lineage_node as n on n.name = texts.value
-- name: lineage_list
select * from lineage where (cast(:dataset_id as text) is null or dataset_id = :dataset_id) and run_id > :after order by run_id limit :limit
-- name: lineage_get
select record from lineage where run_id = :run_id
-- name: lineage_count
select count(*) as runs from lineage join generation on generation.run_id = lineage.run_id and generation.dataset_id = lineage.dataset_id
where lineage.dataset_id = :dataset_id
-- name: lineage_edge_forget
delete from lineage_edge where run in (
  select n.id from lineage join lineage_node as n on n.name = 'run:' || lineage.run_id where lineage.dataset_id = :dataset_id
  and lineage.run_id not in (select value from json_each(:kept) as texts))
-- name: lineage_forget
delete from lineage where dataset_id = :dataset_id and run_id not in (select value from json_each(:kept) as texts)
-- name: lineage_node_forget
delete from lineage_node where not exists (select 1 from lineage_edge where source = lineage_node.id)
  and not exists (select 1 from lineage_edge where target = lineage_node.id)
-- name: lineage_node_find
select id, name from lineage_node where name >= :first and name < :before order by name limit :limit
-- name: lineage_node_get
select id from lineage_node where name = :name
-- name: lineage_up
with recursive walk(node, depth) as (
  select cast(:start as bigint), 0
  union select e.source, walk.depth + 1 from walk join lineage_edge as e on e.target = walk.node
  where walk.depth < :depth and e.kind in ('GENERATED', 'USED_IN') and e.at_ms <= :until_ms
) select node, min(depth) as depth from walk group by node
-- name: lineage_down
with recursive walk(node, depth) as (
  select cast(:start as bigint), 0
  union select e.target, walk.depth + 1 from walk join lineage_edge as e on e.source = walk.node
  where walk.depth < :depth and e.kind in ('GENERATED', 'USED_IN') and e.at_ms <= :until_ms
) select node, min(depth) as depth from walk group by node
-- name: lineage_names
select n.id, n.name from json_each(:ids) as texts join lineage_node as n on n.id = cast(texts.value as bigint)
-- name: lineage_edges_into
select e.source, e.kind, e.target, e.at_ms, substr(r.name, 5) as run_id
from json_each(:ids) as texts join lineage_edge as e on e.target = cast(texts.value as bigint) join lineage_node as r on r.id = e.run
-- name: lineage_edges_from
select e.source, e.kind, e.target, e.at_ms, substr(r.name, 5) as run_id
from json_each(:ids) as texts join lineage_edge as e on e.source = cast(texts.value as bigint) join lineage_node as r on r.id = e.run
