/**
 * The publisher of dry runs: everything stays undone.
 * @module
 */

import { digest } from "../idempotency/keygen.mjs"

/**
 * @typedef {import("./base.mjs").Publisher} Publisher
 * @implements {Publisher}
 */
export class NoopPublisher {
  /**
   * @param {string} _path
   * @param {Uint8Array} content
   */
  write_file(_path, content) {
    return digest(content)
  }

  emit_event() {}

  update_metadata() {}

  publish_release() {
    return true
  }

  noop_guard() {}
}
