alter table ledger add column backfill text not null default '';
create index ledger_staged on ledger (dataset_id, partition, win) where state = 'STAGED';
create index ledger_backfill on ledger (dataset_id, backfill, state) where backfill <> '';
