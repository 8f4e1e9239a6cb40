/**
 * What a word that is not known may have meant: the nearest of those that are, by the measure that the engine takes (`difflib`).
 * @module
 */

const ENOUGH = 0.6

/**
 * What may stand there, and which of it is spelt almost as what was given.
 * @param {string} what
 * @param {string} given
 * @param {string[]} known
 */
export function told(what, given, known) {
  const word = given.toLowerCase()
  const near = nearest(word, known) || known.find((each) => each.split("_").includes(word))
  return ` ${what} ${[...known].sort().join(", ")}.${near ? ` Did you mean \`${near}\`?` : ""}`
}

/**
 * The one of `known` that is most alike; "" where none is alike enough.
 * @param {string} word
 * @param {string[]} known
 */
export function nearest(word, known) {
  const alike = known.map((each) => ({ each, share: ratio([...each], [...word]) })).filter(({ share }) => share >= ENOUGH)
  alike.sort((a, b) => b.share - a.share || (a.each < b.each ? 1 : -1))
  return alike.length ? alike[0].each : ""
}

/**
 * @param {string[]} a
 * @param {string[]} b
 */
const ratio = (a, b) => (a.length + b.length ? (2 * matching(a, b)) / (a.length + b.length) : 1)

/**
 * How many characters stand in blocks that both have: the longest, then those before and behind it.
 * @param {string[]} a
 * @param {string[]} b
 * @returns {number}
 */
function matching(a, b) {
  let [from, at, size] = [0, 0, 0]
  let ends = /** @type {number[]} */ ([])
  a.forEach((sign, i) => {
    const next = /** @type {number[]} */ ([])
    b.forEach((other, j) => {
      if (sign !== other) return
      next[j] = (ends[j - 1] ?? 0) + 1
      if (next[j] > size) [from, at, size] = [i - next[j] + 1, j - next[j] + 1, next[j]]
    })
    ends = next
  })
  if (!size) return 0
  return matching(a.slice(0, from), b.slice(0, at)) + size + matching(a.slice(from + size), b.slice(at + size))
}
