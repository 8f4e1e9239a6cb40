/**
 * One look at upstream: has anything changed since the validator that is known? Only `304` says no; every other answer is the engine's.
 * @module
 */

import { createHash } from "node:crypto"
import { lookup } from "node:dns"
import { request as http } from "node:http"
import { request as https } from "node:https"
import { BlockList, isIP } from "node:net"

import { KfmError, Left } from "./errors.mjs"

const SAMPLE = "sample.kfm.example"
const WAIT_MS = 30_000
const INNER = new BlockList()
for (const [net, bits] of /** @type {[string, number][]} */ ([["0.0.0.0", 8], ["10.0.0.0", 8], ["100.64.0.0", 10], ["169.254.0.0", 16], ["172.16.0.0", 12], ["192.0.0.0", 24], ["192.168.0.0", 16], ["198.18.0.0", 15], ["224.0.0.0", 3]])) INNER.addSubnet(net, bits)
for (const [net, bits] of /** @type {[string, number][]} */ ([["::", 128], ["64:ff9b::", 96], ["fc00::", 7], ["fe80::", 10], ["ff00::", 8]])) INNER.addSubnet(net, bits, "ipv6")
const HERE = new BlockList()
HERE.addSubnet("127.0.0.0", 8)
HERE.addAddress("::1", "ipv6")

/**
 * @typedef {{status: number, etag: string, size: number, digest: string}} Answer
 * @typedef {{allow_loopback: boolean, contact?: string, sample: boolean}} Manners
 */

/**
 * Ask for `url`. With an `etag` the body of a new answer is not read.
 * @param {string} url
 * @param {string | null} etag
 * @param {Manners} manners
 * @returns {Promise<Answer>}
 */
export function ask(url, etag, manners) {
  const { hostname, host, protocol, pathname, search } = new URL(url)
  const sample = manners.sample || hostname === SAMPLE || hostname.endsWith(`.${SAMPLE}`)
  const rerouted = process.env.KFM_SAMPLE_UPSTREAM
  if (sample && (!rerouted || !rerouted.startsWith("http"))) throw new Left("the sample upstream is part of the engine")
  const address = sample ? new URL(/** @type {string} */ (rerouted)) : null
  const send = (address?.protocol ?? protocol) === "https:" ? https : http
  const headers = {
    Host: host,
    "User-Agent": `kfm-node${manners.contact ? ` (+${manners.contact})` : ""}`,
    Accept: "*/*",
    "Accept-Encoding": "identity",
    ...(etag === null ? {} : { "If-None-Match": etag }),
  }
  const where = { hostname: address?.hostname ?? hostname, port: (address ?? new URL(url)).port, path: pathname + search, headers, timeout: WAIT_MS }
  return new Promise((done, failed) => {
    const asked = send({ ...where, lookup: guarded(sample || manners.allow_loopback), agent: false }, (answer) => {
      const told = { status: answer.statusCode ?? 0, etag: strong(answer.headers.etag) }
      if (told.status !== 200 || etag !== null) {
        asked.destroy()
        return done({ ...told, size: 0, digest: "" })
      }
      const hash = createHash("sha256")
      let size = 0
      answer.on("data", (piece) => {
        hash.update(piece)
        size += piece.length
      })
      answer.on("end", () => done({ ...told, size, digest: `sha256:${hash.digest("hex")}` }))
      answer.on("error", (error) => failed(unavailable(hostname, error)))
    })
    if (isIP(where.hostname) && !allowed(where.hostname, sample || manners.allow_loopback)) asked.destroy(new Error("it is an address of this network"))
    asked.on("timeout", () => asked.destroy(new Error("it did not answer")))
    asked.on("error", (error) => failed(unavailable(hostname, error)))
    asked.end()
  })
}

/** @param {string | undefined} etag */
const strong = (etag) => (etag && /^"[\x21\x23-\x7e]*"$/.test(etag) ? etag : "")

/**
 * @param {string} address
 * @param {boolean} loopback
 */
function allowed(address, loopback) {
  const family = isIP(address) === 6 ? "ipv6" : "ipv4"
  return HERE.check(address, family) ? loopback : !INNER.check(address, family)
}

/**
 * A lookup that gives no address of this network; what it gave is what is connected to.
 * @param {boolean} loopback
 * @returns {import("node:net").LookupFunction}
 */
function guarded(loopback) {
  return (hostname, options, done) =>
    lookup(hostname, { ...options, all: true }, (error, found) => {
      if (error) return done(error, [])
      const wrong = found.find((each) => !allowed(each.address, loopback))
      if (wrong) return done(Object.assign(new Error("it leads into this network"), { code: "EACCES" }), [])
      return options.all ? done(null, found) : done(null, found[0].address, found[0].family)
    })
}

/**
 * @param {string} host
 * @param {Error} error
 */
const unavailable = (host, error) =>
  new KfmError(`${host} could not be asked: ${error.message}.`, { expected: "an answer", remedy: "Run again later: the official version is unchanged.", code: 4, name: "UpstreamUnavailable" })
