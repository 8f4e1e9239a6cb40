// What telemetry tells. Made from schemas/telemetry by `make schemas`: change the records, not this file.

/** Who did what through the console, or was not let. */
export interface AuditLine {
  readonly timestamp: string;
  readonly job_id: string;
  readonly act: string;
  readonly address: string;
  readonly decision: "allowed" | "done" | "failed" | "refused";
  readonly who: string | null;
  readonly role?: string;
  readonly how?: string;
  readonly client?: string;
  readonly dataset_id?: string;
  readonly said?: string;
}

/** What that energy stands for where it was used. */
export interface Carbon {
  readonly co2e_g: number;
  readonly g_per_kwh: number;
  readonly region: string;
  readonly source: string;
}

/** What was handed out, or refused, to whom, by which decision of the rules. */
export interface DecisionLine {
  readonly timestamp: string;
  readonly job_id: string;
  readonly address: string;
  readonly reader: string | null;
  readonly answer: number;
  readonly dataset_ids: ReadonlyArray<string>;
  readonly decision_ids: ReadonlyArray<string>;
  readonly policy_digest: string;
  readonly refused?: ReadonlyArray<string>;
}

/** How much a run took, and how that is known. */
export interface Energy {
  readonly kwh: number;
  readonly method: "cpu-time" | "rapl";
  readonly cpu_seconds: number;
  readonly watts_per_core: number | null;
  readonly source: string;
  readonly uncertainty: string;
}

/** One line: a request that was not taken. */
export interface Failure {
  readonly at: string;
  readonly source_id: string;
  readonly known: boolean;
  readonly status: number;
  readonly code: string;
  readonly field?: string;
  readonly body_bytes?: number;
  readonly body_digest?: string;
  readonly remote?: string;
  readonly correlation_id?: string;
}

/** One line of a worker's log. */
export interface JobLine {
  readonly timestamp: string;
  readonly service: "workers";
  readonly job_type: string;
  readonly job_id: string;
  readonly run_id: string;
  readonly correlation_id: string;
  readonly dataset_ids: ReadonlyArray<string>;
  readonly zone_in: string;
  readonly zone_out: string;
  readonly policy_label: string;
  readonly status: "failed" | "skipped" | "started" | "succeeded";
  readonly duration_ms?: number;
  readonly error?: Readonly<Record<string, string>> | null;
}

/** One request. What lines of workers have too means the same: a job is a request. */
export interface RequestLine {
  readonly timestamp: string;
  readonly service: "reader";
  readonly job_type: string;
  readonly job_id: string;
  readonly run_id: string;
  readonly correlation_id: string;
  readonly dataset_ids: ReadonlyArray<string>;
  readonly zone_in: string;
  readonly zone_out: string;
  readonly policy_label: string;
  readonly status: "failed" | "skipped" | "started" | "succeeded";
  readonly duration_ms?: number;
  readonly error?: Readonly<Record<string, string>> | null;
  readonly answer: number;
  readonly bytes_out?: number;
  readonly reader?: string | null;
  readonly decision_ids?: ReadonlyArray<string>;
}

/** UpdatersRunTelemetry: one line for every run that ended, whatever became of it. Of what is not public no count or size is told: they are 0, and `withheld` says so. */
export interface RunTelemetry {
  readonly run_id: string;
  readonly updater_id: string;
  readonly version: string;
  readonly status: "FAILED" | "PARTIAL" | "SKIPPED" | "SUCCESS";
  readonly failure_stage: "EXECUTE" | "LINEAGE" | "PLAN" | "UPSERT" | null;
  readonly latency_ms: number;
  readonly retries: number;
  readonly wal_replay_count: number;
  readonly inputs_count: number;
  readonly outputs_count: number;
  readonly bytes_in: number;
  readonly bytes_out: number;
  readonly energy_kwh: number | null;
  readonly co2e_g: number | null;
  readonly slo_target_latency_ms: number;
  readonly slo_ok: boolean;
  readonly error_budget_burn: number;
  readonly error_budget_period: string;
  readonly dataset_id: string;
  readonly state: string;
  readonly trigger: string;
  readonly ended_at: string;
  readonly correlation_id: string;
  readonly withheld: boolean;
  readonly energy: Energy | null;
  readonly carbon: Carbon | null;
  readonly traceparent?: string;
}

/** One line of `ledger/logs/signals-<day>.jsonl`. */
export interface Signal {
  readonly timestamp: string;
  readonly signal: "artifact.size_bytes" | "freshness.delta_minutes" | "pool.wait_ms" | "run.lifecycle";
  readonly value: string | number;
  readonly job_id?: string;
  readonly run_id?: string;
  readonly job_type?: string;
  readonly dataset_id?: string;
  readonly pool?: string;
  readonly uri?: string;
  readonly target_minutes?: number | null;
}

/** One line of `artifacts/event_log.jsonl`. */
export interface TelemetryEvent {
  readonly event_id: string;
  readonly name: string;
  readonly ts: string;
  readonly run_id: string;
  readonly duration_ms: number;
  readonly dataset: string;
  readonly source_id: string;
  readonly trigger: string;
  readonly idempotency_state: string;
  readonly artifact_count: number;
  readonly dry_run?: boolean;
}
