/** The command line says what Python's says; publishers and ledgers keep their promises. */

import assert from "node:assert/strict"
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { after, test } from "node:test"

import { loads } from "../canonical.mjs"
import { Left } from "../errors.mjs"
import { digest } from "../idempotency/keygen.mjs"
import { FORMAT, is_free, LinesLedger, sqlite, SqliteLedger } from "../idempotency/ledger.mjs"
import { in_turn, is_unlocked } from "../locks.mjs"
import { plain_yaml } from "../plain_yaml.mjs"
import { METHODS, TracePublisher } from "../publisher/base.mjs"
import { GithubActionsPublisher } from "../publisher/github_actions.mjs"
import { LocalPublisher } from "../publisher/local.mjs"
import { NoopPublisher } from "../publisher/noop.mjs"
import { renamed } from "../run_log.mjs"
import { main, rendered } from "../runner.mjs"

const vectors = loads(readFileSync(new URL("../../vectors/updater.json", import.meta.url)))
const all = mkdtempSync(join(tmpdir(), "kfm-node-test-"))
const folder = () => mkdtempSync(join(all, "one-"))
after(() => rmSync(all, { recursive: true }))

/** @param {string[]} words */
async function said(words) {
  const told = { out: "", err: "" }
  const kept = [process.stdout.write, process.stderr.write]
  process.stdout.write = (/** @type {any} */ text) => Boolean((told.out += text))
  process.stderr.write = (/** @type {any} */ text) => Boolean((told.err += text))
  try {
    const code = await main(words)
    return { code, ...told }
  } finally {
    ;[process.stdout.write, process.stderr.write] = kept
  }
}

test("help is that of Python", async () => {
  for (const row of vectors.help) assert.equal((await said(row.words)).out, row.out)
})

test("what is refused is refused in the words of Python", async () => {
  process.env.KFM_PYTHON = "none" // Node alone
  for (const row of vectors.refused) {
    process.chdir(folder())
    if ("config" in row) writeFileSync("config.json", row.config)
    for (const [name, text] of Object.entries(row.files ?? {})) {
      mkdirSync(dirname(name), { recursive: true })
      writeFileSync(name, /** @type {string} */ (text))
    }
    const { code, err } = await said(row.words)
    assert.deepEqual({ code, err }, { code: row.code, err: row.err }, JSON.stringify(row))
  }
})

test("a folder of this machine is renamed as in Python", () => {
  for (const row of vectors.renamed) assert.equal(renamed(row.text, row.place, row.name), row.told, row.text)
})

test("a state is rendered in the words of Python", () => {
  for (const row of vectors.rendered) assert.equal(rendered(row.outcome, row.seconds), row.line)
})

test("plain YAML is read as Python reads it, or left", () => {
  for (const row of vectors.yaml) assert.deepEqual(JSON.stringify(plain_yaml(Buffer.from(row.text))), JSON.stringify(row.value), row.text)
})

for (const make of [() => new NoopPublisher(), () => new LocalPublisher(folder()), () => new GithubActionsPublisher(folder())]) {
  const name = make().constructor.name
  test(`${name} has every method, and its calls are traced in order`, () => {
    /** @type {any[]} */
    const calls = []
    const publisher = new TracePublisher(/** @type {any} */ (make()), (call) => calls.push(call), { dry_run: true })
    const content = Buffer.from("x")
    assert.equal(publisher.write_file("processed/x/v1/a", content), digest(content))
    publisher.emit_event("updater.run", { event_id: "e", dataset: "x" })
    publisher.update_metadata("catalog/a.json", content)
    assert.equal(publisher.publish_release("t", { a: "sha256:0" }), true)
    if (name === "NoopPublisher") publisher.noop_guard()
    else assert.throws(() => publisher.noop_guard(), /dry run/)
    assert.deepEqual(calls.map((call) => call.call), METHODS)
    assert.ok(calls.every((call) => call.dry_run))
  })
}

test("a local publisher writes once, whole, and inside its zone", () => {
  const ws = folder()
  const publisher = new LocalPublisher(ws)
  publisher.write_file("a/b", Buffer.from("x"))
  publisher.write_file("a/b", Buffer.from("x"))
  assert.throws(() => publisher.write_file("a/b", Buffer.from("y")), /other content/)
  assert.throws(() => publisher.write_file("../b", Buffer.from("y")), /leaves its zone/)
  assert.equal(readFileSync(join(ws, "data/a/b"), "utf8"), "x")
  assert.equal(publisher.publish_release("t", {}), true)
  assert.equal(publisher.publish_release("t", {}), false)
})

test("a no-op publisher leaves nothing", () => {
  process.chdir(folder())
  new NoopPublisher().write_file("a/b", Buffer.from("x"))
  assert.equal(existsSync("a"), false)
})

test("outputs of a step go to the file that GitHub names", () => {
  const output = join(folder(), "out")
  const publisher = new GithubActionsPublisher(folder(), { output, summary: `${output}.md` })
  publisher.emit_event("updater.run", { dataset: "x", run_id: "r", idempotency_state: "NOOP", duration_ms: 1 })
  assert.match(readFileSync(output, "utf8"), /^updater_run<<kfm_.*\n{"dataset":"x".*\nkfm_.*\nconcurrency_group<<.*\npipelines-updater-x\n/)
  assert.match(readFileSync(`${output}.md`, "utf8"), /\| x \| r \| NOOP \| 1 ms \|/)
})

test("a lock is ours until we let go", () => {
  const path = join(folder(), "turnstile.lock")
  in_turn(path, () => assert.equal(is_unlocked(path), false))
  assert.equal(is_unlocked(path), true)
})

test("a lease is free when it was released, ran out, is of another boot, or its holder died", () => {
  const now = { boot_id: "b", boot_ns: 100n }
  const held = { name: "x/-", epoch: 1, token: 2, holder: "me", boot_id: "b", expires_ns: 200 }
  const ledger = folder()
  assert.equal(is_free(undefined, ledger, now), true)
  assert.equal(is_free({ ...held, holder: null }, ledger, now), true)
  assert.equal(is_free({ ...held, expires_ns: 100 }, ledger, now), true)
  assert.equal(is_free({ ...held, boot_id: "c" }, ledger, now), true)
  assert.equal(is_free(held, ledger, now), true, "nobody holds its file")
  mkdirSync(join(ledger, "locks"))
  in_turn(join(ledger, "locks/x~-.1-2"), () => assert.equal(is_free(held, ledger, now), false))
})

test("lines that are not whole are dropped at the end and refused elsewhere", () => {
  const file = join(folder(), "ledger.jsonl")
  writeFileSync(file, `{"format":${FORMAT},"n":0,"prev":"","size":0,"store":"s"`)
  const body = readFileSync(file, "utf8")
  writeFileSync(file, `${body},"sum":"${digest(body).slice(7)}"}\n`)
  const ledger = new LinesLedger(file)
  ledger.transaction((tx) => tx.put("meta", { key: "a", value: "1" }))
  ledger.transaction((tx) => tx.put("meta", { key: "a", value: "2" }))
  appendFileSync(file, '{"n":')
  assert.equal(ledger.read((tx) => tx.get("meta", { key: "a" }))?.value, "2")
  ledger.transaction((tx) => tx.put("meta", { key: "b", value: "3" }))
  assert.equal(ledger.read((tx) => tx.find("meta", {})).length, 2)
  const whole = readFileSync(file, "utf8")
  for (const wrong of [whole.replace('"value":"1"', '"value":"7"'), whole.split("\n").filter((_, n) => n !== 1).join("\n")]) {
    writeFileSync(file, wrong)
    assert.throws(() => ledger.read((tx) => tx.find("meta", {})), /damaged in line/)
  }
  writeFileSync(file, whole.replace(`"format":${FORMAT}`, '"format":99'))
  assert.throws(() => ledger.read(() => null), /damaged/)
})

test("a store of another format is left to the engine", async () => {
  const driver = await sqlite()
  if (!driver) return
  const file = join(folder(), "s.sqlite")
  const ledger = new SqliteLedger(file, driver)
  assert.throws(() => ledger.read(() => null), Left)
})
