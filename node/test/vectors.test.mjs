/** The golden vectors, which Python reads too. */

import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"

import { dumps, loads } from "../canonical.mjs"
import * as keygen from "../idempotency/keygen.mjs"
import { Refused, verify } from "../scheduler/webhook_validator.mjs"

/** @param {string} name */
const vectors = (name) => loads(readFileSync(new URL(`../../vectors/${name}.json`, import.meta.url)))
const identities = vectors("identities")

// the order of arguments is that of the first case
for (const [name, rows] of Object.entries(identities)) {
  const order = Object.keys(rows[0].args ?? rows[0].args_json)
  test(`${name} equals its vectors`, () => {
    for (const row of rows) {
      const call = () => {
        const args = row.args ?? Object.fromEntries(Object.entries(row.args_json).map(([key, text]) => [key, loads(Buffer.from(/** @type {string} */ (text)))]))
        return /** @type {any} */ (keygen)[name](...order.filter((key) => key in args).map((key) => args[key]))
      }
      if (row.refused) assert.throws(call, String(row.note))
      else if ("matches" in row) assert.match(call(), new RegExp(`^(?:${row.matches})$`))
      else assert.equal(call(), row.expect, row.note)
    }
  })
}

test("what is read is written as canonical JSON", () => {
  const raw = readFileSync(new URL("../../vectors/identities.json", import.meta.url))
  assert.equal(dumps(loads(Buffer.from(dumps(loads(raw))))), dumps(loads(raw)))
  for (const wrong of ["01", "+1", "1.", ".5", "[1,]", '{"a":1,}', "tru", "NaN", "'a'", '"\t"', "\ufeff1", "1 2", "", '{"a":1,"a":2}', "9007199254740993", "1e999", '"\\ud800"'])
    assert.throws(() => loads(Buffer.from(wrong)), wrong)
})

test("every request gets the verdict of the vectors", () => {
  for (const row of vectors("webhooks").verify) {
    const body = "body" in row ? Buffer.from(row.body) : Buffer.from(row.body_base64, "base64")
    let found
    try {
      found = { accept: verify({ ...row, body }) }
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      found = { refuse: { code: error.code, status: error.status, ...(error.field ? { field: error.field } : {}) } }
    }
    const wanted = "accept" in row ? { accept: { ...row.accept } } : { refuse: { ...row.refuse } }
    assert.deepEqual(found, wanted, row.id)
  }
})
