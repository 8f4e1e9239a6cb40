/**
 * The ledger that the engine keeps, read and written by the same rules: rows in `ledger/idempotency.sqlite`, or lines in
 * `ledger/ledger.jsonl`. `docs/ledger.md` has the form of both.
 * @module
 */

import { createHash } from "node:crypto"
import { closeSync, existsSync, fstatSync, fsyncSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"

import { dumps } from "../canonical.mjs"
import { KfmError, Left } from "../errors.mjs"
import { in_turn, is_unlocked } from "../locks.mjs"

/**
 * @typedef {{[column: string]: any}} Row
 * @typedef {{get(table: string, key: Row): Row | undefined, find(table: string, where: Row): Row[], put(table: string, row: Row): void}} Tx
 */

/** The format of the tables that is known here: how many files `store/migrations` has. */
export const FORMAT = 15

/** What tells one row of a table from another; tables that Node neither reads nor writes are not named. */
export const KEYS = {
  meta: ["key"],
  lease: ["name"],
  job: ["job_id"],
  ledger: ["run_id"],
  noop: ["run_id"],
  pool: ["name"],
  lane: ["pool", "dataset_id"],
  switch: ["name"],
  outbox: ["run_id", "generation"],
  generation: ["dataset_id", "generation"],
  head_key: ["dataset_id", "partition", "win"],
  source_state: ["dataset_id", "source_url"],
}
const ORDERED = ["meta", "lease", "job", "ledger", "noop", "pool", "switch"] // rows have a place in the order of arrival
export const LEDGER_FIELDS = [
  "run_id", "wal_id", "dataset_id", "partition", "win", "state", "key", "timestamp", "source_metadata", "pipeline_version", "updater_id",
  "updater_version", "spec_hash", "transform_hash", "input_hash", "toolchain_digest", "attempt", "forced", "trigger_type", "base_version",
  "base_generation", "pinned", "part", "version_id", "version_digest", "content_id", "intent", "promo", "reason", "ended_at", "rows_read",
  "rows_written", "error_count", "latency_ms", "freshness_minutes", "archived", "backfill",
]

/**
 * Whether a row of the ledger is as it was written.
 * @param {Row} row
 */
export const is_whole = (row) => ledger_sum(row) === row.sum

/**
 * The checksum of a ledger row over all its fields; one without a backfill is summed as before there were any.
 * @param {Row} row
 */
export const ledger_sum = (row) =>
  createHash("sha256")
    .update(dumps(LEDGER_FIELDS.filter((field) => field !== "backfill" || row[field]).map((field) => row[field])))
    .digest("hex")

/**
 * The ledger of an address as `store` in kfm.yml has it.
 * @param {string} workspace
 * @param {string} url
 */
export async function open_ledger(workspace, url) {
  const [, scheme, path] = /^(sqlite|jsonl):\/\/\/(.+)$/.exec(url) ?? []
  if (!scheme || path.split("/").includes("..")) throw new Left(`the store ${url.split(":")[0]}: is the engine's`)
  const file = join(workspace, path)
  if (scheme === "jsonl") return new LinesLedger(file)
  const driver = await sqlite()
  if (!driver) throw new Left("this Node has no SQLite (22.5 or newer has, or install better-sqlite3)")
  return new SqliteLedger(file, driver)
}

/**
 * @typedef {{exec(sql: string): void, all(sql: string, ...values: any[]): Row[], close(): void}} Database
 * @typedef {(file: string) => Database} Driver
 */

/**
 * SQLite as this Node has it; null: it has none.
 * @returns {Promise<Driver | null>}
 */
export async function sqlite() {
  if (process.env.KFM_NODE_SQLITE === "none") return null
  const told = process.listeners("warning")
  process.removeAllListeners("warning") // that it is experimental
  try {
    const { DatabaseSync } = await import("node:sqlite")
    return (file) => {
      const db = new DatabaseSync(file)
      return {
        exec: (sql) => db.exec(sql),
        all: (sql, ...values) => {
          const asked = db.prepare(sql)
          asked.setReadBigInts(true)
          return asked.all(...values)
        },
        close: () => db.close(),
      }
    }
  } catch {
    return better_sqlite()
  } finally {
    setImmediate(() => told.forEach((listener) => process.on("warning", listener)))
  }
}

/** @returns {Driver | null} */
function better_sqlite() {
  for (const from of [join(process.cwd(), "x.js"), import.meta.url]) {
    try {
      const Open = createRequire(from)("better-sqlite3")
      return (file) => {
        const db = new Open(file)
        return {
          exec: (sql) => void db.exec(sql),
          all: (sql, ...values) => {
            const asked = db.prepare(sql).safeIntegers(true)
            return asked.reader ? asked.all(...values) : (asked.run(...values), [])
          },
          close: () => db.close(),
        }
      }
    } catch {
      continue
    }
  }
  return null
}

/** @param {Row} row */
function plain(row) {
  for (const [name, value] of Object.entries(row))
    if (typeof value === "bigint" && Number.isSafeInteger(Number(value))) row[name] = Number(value)
  return row
}

/** One SQLite file, which the engine and others may have open. */
export class SqliteLedger {
  /**
   * @param {string} file
   * @param {Driver} driver
   */
  constructor(file, driver) {
    this.file = file
    this.driver = driver
  }

  exists() {
    return existsSync(this.file)
  }

  /**
   * One transaction; durable when it returns.
   * @template T
   * @param {(tx: Tx) => T} work
   * @returns {T}
   */
  transaction(work) {
    return in_turn(join(dirname(this.file), "turnstile.lock"), () => this.asked(work, "begin immediate", "commit"))
  }

  /**
   * Look without writing: one consistent snapshot.
   * @template T
   * @param {(tx: Tx) => T} work
   * @returns {T}
   */
  read(work) {
    return this.asked(work, "begin", "rollback")
  }

  /**
   * @template T
   * @param {(tx: Tx) => T} work
   * @param {string} begin
   * @param {string} end
   * @returns {T}
   */
  asked(work, begin, end) {
    const db = this.driver(this.file)
    try {
      db.exec("pragma busy_timeout = 60000")
      db.exec("pragma synchronous = full")
      check_format(Number(db.all("pragma user_version")[0].user_version))
      db.exec(begin)
      try {
        const found = work(rows_of(db))
        db.exec(end)
        return found
      } catch (error) {
        db.exec("rollback")
        throw error
      }
    } finally {
      db.close()
    }
  }
}

/** @param {number} found */
function check_format(found) {
  if (found !== FORMAT) throw new Left(`the store has format ${found}, and ${FORMAT} is known here`)
}

/**
 * @param {Database} db
 * @returns {Tx}
 */
function rows_of(db) {
  /** @param {Row} where */
  const clause = (where) => Object.keys(where).map((name) => `${name} = ?`).join(" and ") || "true"
  /** @type {Tx["find"]} */
  const find = (table, where) => db.all(`select * from ${table} where ${clause(where)}`, ...Object.values(where)).map(plain)
  return {
    find,
    get: (table, key) => find(table, key)[0],
    put: (table, row) => {
      const key = KEYS[/** @type {keyof typeof KEYS} */ (table)]
      const names = Object.keys(row)
      const kept = names.filter((name) => !key.includes(name)).map((name) => `${name} = excluded.${name}`)
      db.all(
        `insert into ${table} (${names.join(", ")}) values (${names.map(() => "?").join(", ")}) on conflict (${key.join(", ")}) do update set ${kept.join(", ")}`,
        ...Object.values(row),
      )
    },
  }
}

/** Lines of JSON, each with a sum that goes on from the line before. */
export class LinesLedger {
  /** @param {string} file */
  constructor(file) {
    this.file = file
  }

  exists() {
    return existsSync(this.file)
  }

  /**
   * One transaction: one line, on the disk when it returns.
   * @template T
   * @param {(tx: Tx) => T} work
   * @returns {T}
   */
  transaction(work) {
    return in_turn(join(dirname(this.file), "turnstile.lock"), () => {
      const lines = new Lines(this.file)
      /** @type {Row[]} */
      const changed = []
      const found = work(lines.tables.tx(changed))
      if (changed.length) lines.append(changed)
      return found
    })
  }

  /**
   * @template T
   * @param {(tx: Tx) => T} work
   * @returns {T}
   */
  read(work) {
    return work(new Lines(this.file).tables.tx([]))
  }
}

/** @param {string} body */
const sum_of = (body) => createHash("sha256").update(body).digest("hex")

/** @param {any} value */
const opened = (value) => (value !== null && typeof value === "object" ? BigInt(value.integer) : value)
/** @param {any} value */
const written = (value) => (typeof value === "bigint" ? { integer: String(value) } : value)

/** The rows of a file of lines, by table. */
class Tables {
  constructor() {
    /** @type {Map<string, Map<string, {at: number, row: Row}>>} */
    this.tables = new Map(Object.keys(KEYS).map((name) => [name, new Map()]))
  }

  /**
   * @param {string} table
   * @param {Row} row
   */
  key(table, row) {
    return JSON.stringify(KEYS[/** @type {keyof typeof KEYS} */ (table)].map((name) => row[name]))
  }

  /** @param {Row} change */
  take(change) {
    const rows = this.tables.get(change.table)
    if (!rows) return // of no concern here
    const row = Object.fromEntries(Object.entries(change.put ?? change.drop).map(([name, value]) => [name, opened(value)]))
    if (change.drop) rows.delete(this.key(change.table, row))
    else rows.set(this.key(change.table, row), { at: change.at ?? 0, row })
  }

  /**
   * @param {Row[]} changed
   * @returns {Tx}
   */
  tx(changed) {
    /** @type {Tx["find"]} */
    const find = (table, where) =>
      [.../** @type {Map<string, {at: number, row: Row}>} */ (this.tables.get(table)).values()]
        .map((each) => each.row)
        .filter((row) => Object.entries(where).every(([name, value]) => row[name] === value))
    return {
      find,
      get: (table, key) => find(table, key)[0],
      put: (table, row) => {
        const rows = /** @type {Map<string, {at: number, row: Row}>} */ (this.tables.get(table))
        const name = this.key(table, row)
        const at = rows.get(name)?.at ?? 1 + Math.max(0, ...[...rows.values()].map((each) => each.at))
        const put = Object.fromEntries(Object.keys(row).sort().map((column) => [column, written(row[column])]))
        const change = { ...(ORDERED.includes(table) ? { at } : {}), put, table }
        this.take(change)
        changed.push(change)
      },
    }
  }
}

/** A file of lines, read whole. */
class Lines {
  /** @param {string} file */
  constructor(file) {
    this.file = file
    this.tables = new Tables()
    this.size = 0
    this.lines = 0
    this.sum = ""
    this.torn = /** @type {Buffer} */ (Buffer.alloc(0))
    this.read(readFileSync(file))
  }

  /** @param {Buffer} raw */
  read(raw) {
    let at = 0
    for (let end = raw.indexOf(10); end >= 0; end = raw.indexOf(10, at)) {
      const line = raw.subarray(at, end)
      // a disk that lost its power may have kept the length of a line and not what it says
      if (end === raw.length - 1 && line.includes(0) && this.lines) break
      this.line(line)
      at = end + 1
    }
    this.size = at
    this.torn = raw.subarray(at)
  }

  /** @param {Buffer} raw */
  line(raw) {
    const text = raw.toString("utf8")
    const found = /^(.*),"sum":"([0-9a-f]{64})"\}$/s.exec(text)
    if (!found || sum_of(found[1]) !== found[2]) throw this.damaged("its sum does not match")
    const document = JSON.parse(text)
    if (document.n !== this.lines || document.prev !== this.sum) throw this.damaged("it does not go on from the line before")
    if (!this.lines) check_format(document.format)
    for (const change of document.rows ?? []) this.tables.take(change)
    this.lines += 1
    this.sum = found[2]
  }

  /** @param {string} why */
  damaged(why) {
    return new KfmError(`The store ${this.file.split("/").pop()} is damaged in line ${this.lines + 1}: ${why}.`, {
      expected: "lines whose sums go on from one another",
      remedy: "Run `kfm reindex`: it sets the file aside and rebuilds the store from the evidence.",
      code: 6,
      name: "IntegrityError",
    })
  }

  /** @param {Row[]} rows */
  append(rows) {
    const body = JSON.stringify({ n: this.lines, prev: this.sum, rows }).slice(0, -1)
    const line = Buffer.from(`${body},"sum":"${sum_of(body)}"}\n`)
    const fd = openSync(this.file, "r+")
    try {
      if (this.torn.length) this.keep_torn(fd)
      try {
        for (let done = 0; done < line.length; ) done += writeSync(fd, line, done, line.length - done, this.size + done)
        fsyncSync(fd)
      } catch (error) {
        ftruncateSync(fd, this.size)
        throw error
      }
      if (fstatSync(fd).size !== this.size + line.length) throw this.damaged("somebody else wrote into it")
    } finally {
      closeSync(fd)
    }
  }

  /**
   * Drop a line whose writer died before it was whole; its bytes are kept.
   * @param {number} fd
   */
  keep_torn(fd) {
    const aside = join(dirname(this.file), "quarantine")
    mkdirSync(aside, { recursive: true })
    const name = createHash("sha256").update(this.torn).digest("hex").slice(0, 16)
    writeFileSync(join(aside, `line-${name}`), this.torn, { flush: true })
    ftruncateSync(fd, this.size)
    fsyncSync(fd)
  }
}

/**
 * Whether nobody works under a lease: it was released, it ran out, its machine was started anew, or its holder died.
 * @param {Row | undefined} lease
 * @param {string} folder of the ledger
 * @param {{boot_id: string, boot_ns: bigint}} now
 */
export function is_free(lease, folder, now) {
  if (!lease || lease.holder === null || lease.boot_id !== now.boot_id || BigInt(lease.expires_ns) <= now.boot_ns) return true
  return is_unlocked(join(folder, "locks", `${lease.name.replaceAll("/", "~")}.${lease.epoch}-${lease.token}`))
}
