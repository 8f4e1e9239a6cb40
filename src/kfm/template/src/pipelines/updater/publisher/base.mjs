/**
 * What a publisher promises: each effect is one call, and in a dry run none of them leaves the run's own folder.
 * @module
 */

import { digest } from "../idempotency/keygen.mjs"

/**
 * @typedef {object} Publisher
 * @property {(path: string, content: Uint8Array) => string} write_file make `content` durable under `path`, once; returns its digest
 * @property {(name: string, payload: {[field: string]: unknown}) => void} emit_event tell telemetry; may be lost
 * @property {(key: string, value: Uint8Array) => void} update_metadata render the projection `key`
 * @property {(tag: string, assets: {[path: string]: string}) => boolean} publish_release announce `assets`; false when that tag was announced already
 * @property {() => void} noop_guard throw when this publisher could change something outside a dry run's own folder
 */

/** The methods every publisher has. */
export const METHODS = /** @type {const} */ (["write_file", "emit_event", "update_metadata", "publish_release", "noop_guard"])

/**
 * A publisher that writes down every call, in order, before passing it on.
 * @implements {Publisher}
 */
export class TracePublisher {
  /**
   * @param {Publisher} inner
   * @param {(call: object) => void} record
   * @param {object} marks
   */
  constructor(inner, record, marks = {}) {
    this.inner = inner
    /** @param {object} call */
    this.note = (call) => record({ ...call, ...marks })
  }

  /**
   * @param {string} path
   * @param {Uint8Array} content
   */
  write_file(path, content) {
    this.note({ call: "write_file", path, size: content.length })
    return this.inner.write_file(path, content)
  }

  /**
   * @param {string} name
   * @param {{[field: string]: unknown}} payload
   */
  emit_event(name, payload) {
    this.note({ call: "emit_event", name, event_id: payload.event_id ?? null })
    this.inner.emit_event(name, payload)
  }

  /**
   * @param {string} key
   * @param {Uint8Array} value
   */
  update_metadata(key, value) {
    this.note({ call: "update_metadata", key, digest: digest(value) })
    this.inner.update_metadata(key, value)
  }

  /**
   * @param {string} tag
   * @param {{[path: string]: string}} assets
   */
  publish_release(tag, assets) {
    this.note({ call: "publish_release", tag, assets })
    return this.inner.publish_release(tag, assets)
  }

  noop_guard() {
    this.note({ call: "noop_guard" })
    this.inner.noop_guard()
  }
}
