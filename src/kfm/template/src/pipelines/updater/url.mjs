/**
 * Addresses as the engine takes them apart: what it refuses is refused here, in its words.
 * @module
 */

import { isIPv6 } from "node:net"

import { Left, quoted, usage } from "./errors.mjs"
import { names_a_secret } from "./secrets.mjs"

const FILE = "file:///"
const URL_ = /^(https?):\/\/([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#[^]*)?$/i
const HOST = /^(?=.{1,253}$)[a-z0-9_][a-z0-9_-]{0,62}(?:\.[a-z0-9_][a-z0-9_-]{0,62})*$/
const FORBIDDEN = /[\x00-\x1f\x7f]/
const MEND = "Correct `source.url`."
/** Any values do: what is looked at is where they stand. */
const VALUES = /** @type {{[name: string]: string}} */ ({ since: "2000-01-01T00:00:00Z", until: "2000-01-02T00:00:00Z", day: "20000101", partition: "p" })

/**
 * A usable address with no secret inside.
 * @param {string} template
 */
export function check_address(template) {
  const url = expanded(template)
  if (url.startsWith(FILE)) {
    const parts = url.slice(FILE.length).split("/")
    if (FORBIDDEN.test(url) || parts.some((part) => ["", ".", ".."].includes(part))) throw usage("The path is not usable.", "file:///<path inside the workspace>", MEND)
    return
  }
  for (const field of (parsed(url).query ?? "").split("&")) {
    const [name, value] = field.split(/=(.*)/s).map(unquoted)
    if (!names_a_secret(name)) continue
    if (value && !/^(?:env|credential|file|cmd):.+$/.test(value))
      throw usage(
        `The URL holds an inline secret: query field ${quoted(name)} has a literal value.`,
        "a reference, `env:NAME` or `credential:NAME`",
        "Put the value in the environment, or name where it is under `credentials` in kfm.yml.",
      )
    const kind = /^(file|cmd):/.exec(value ?? "")?.[1]
    if (kind)
      throw usage(
        `The query field ${quoted(name)} of the URL names a ${kind === "file" ? "file" : "command"} itself.`,
        "`env:NAME`, or `credential:NAME` of the table `credentials` in kfm.yml",
        `Move it there, as \`credentials: {NAME: ${kind}:…}\`, and write \`credential:NAME\` here.`,
      )
  }
}

/**
 * The host that an address leads to, whatever its placeholders become.
 * @param {string} template
 */
export const host_of = (template) => parsed(expanded(template)).host

/** @param {string} url */
function parsed(url) {
  const found = FORBIDDEN.test(url) ? null : URL_.exec(url)
  if (!found) throw usage("The URL is not usable.", "http://host/path or https://host/path", MEND)
  const [, scheme, authority, , query] = found
  if (authority.includes("@"))
    throw usage(
      "The URL holds a secret inline: user information before the host.",
      "credentials as references",
      "Remove it and use `source.headers` with `Authorization: env:NAME` or `credential:NAME`.",
    )
  const parts = /^(\[[^\]]*\]|[^:[\]]*)(?::([0-9]{0,5}))?$/.exec(authority)
  const port = parts ? Number(parts[2] || (scheme.toLowerCase() === "https" ? 443 : 80)) : 0
  const host = parts ? normal_host(parts[1]) : ""
  if (!host || port < 1 || port > 65535) throw usage("The URL has no usable host or port.", "a host name, optionally with a port", MEND)
  return { host, query }
}

/** @param {string} host */
function normal_host(host) {
  if (host.startsWith("[")) return !host.includes("%") && isIPv6(host.slice(1, -1)) ? new URL(`http://${host}`).hostname.slice(1, -1) : ""
  if (!/^[\x00-\x7f]*$/.test(host)) throw new Left("its host is not spelled in ASCII")
  const name = host.toLowerCase().replace(/\.$/, "")
  return HOST.test(name) ? name : ""
}

/** @param {string} template */
function expanded(template) {
  const [address, query] = template.split("#")[0].split(/\?(.*)/s)
  const start = address.indexOf("/", address.indexOf("://") + 3)
  const [authority, path] = start < 0 ? [address, ""] : [address.slice(0, start), address.slice(start)]
  if (/[{}]/.test(authority)) throw usage("The URL has a placeholder before its path.", "placeholders in path or query only", MEND)
  const fields = (query ?? "").split("&").filter(Boolean).map(filled)
  return authority + filled(path) + (fields.length ? `?${fields.join("&")}` : "")
}

/** @param {string} text */
function filled(text) {
  const placeholder = /\{([^{}]*)\}/g
  if (/[{}]/.test(text.replace(placeholder, ""))) throw usage("The URL has an unmatched brace.", "{since}, {until} or {partition}", MEND)
  return text.replace(placeholder, (_, name) => {
    if (Object.hasOwn(VALUES, name)) return encodeURIComponent(VALUES[name])
    throw usage(`The placeholder {${name}} in the URL is not known.`, "{since}, {until} or {partition}, with a value when used in the path", MEND)
  })
}

/** @param {string} text */
const unquoted = (text) => text.replaceAll("+", " ").replace(/(?:%[0-9A-Fa-f]{2})+/g, (bytes) => Buffer.from(bytes.replaceAll("%", ""), "hex").toString())
