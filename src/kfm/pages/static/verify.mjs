// Check a version in this browser: every file against its digest, the digest of the version against
// the files, and the signature over that. What is wrong is named.
const encoder = new TextEncoder();
const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");
const sha256 = async (bytes) => `sha256:${hex(await crypto.subtle.digest("SHA-256", bytes))}`;
const bytesOf = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

const list = document.getElementById("verdict"), button = document.getElementById("verify-now");
const cells = [...document.querySelectorAll("[data-file]")];

function mark(kind, sign, text) {
  const glyph = document.createElement("span"), word = document.createElement("span");
  glyph.className = "g";
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#s-${sign}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  glyph.append(svg);
  word.textContent = text;
  return { kind, parts: [glyph, word] };
}

function inCell(cell, { kind, parts }) {
  const line = document.createElement("span");
  line.className = "state";
  line.dataset.state = kind;
  line.append(...parts);
  cell.replaceChildren(line);
}

function conclude({ kind, parts }) {
  const line = document.createElement("li");
  line.dataset.state = kind;
  line.append(...parts);
  list.append(line);
}

async function file(cell) {
  const answer = await fetch(cell.dataset.href, { cache: "no-store" });
  if (!answer.ok) return mark("failed", "failed", `not had: ${answer.status}`);
  const found = await sha256(await answer.arrayBuffer());
  return found === cell.dataset.digest
    ? mark("new", "pass", "equal")
    : mark("failed", "failed", `differs: ${found.slice(7, 16)}…`);
}

// RFC 8785 of an object of strings: its members by name, in the order of UTF-16 units.
const canonical = (object) =>
  `{${Object.keys(object).sort().map((k) => `${JSON.stringify(k)}:${JSON.stringify(object[k])}`).join(",")}}`;

async function whole(proved) {
  const { artifacts, transform_hash, updater_version } = proved;
  const found = await sha256(encoder.encode(canonical({ ...artifacts, transform_hash, updater_version })));
  return found === `sha256:${proved.version_digest}`;
}

async function signature({ signed, version_digest }) {
  if (!signed) return mark("denied", "denied", "Nobody who is known here signed it.");
  const body = bytesOf(signed.payload);
  const kind = encoder.encode(signed.payload_type);
  const head = encoder.encode(`DSSEv1 ${kind.length} ${signed.payload_type} ${body.length} `);
  const message = new Uint8Array([...head, ...body]);
  let key;
  try {
    key = await crypto.subtle.importKey("raw", bytesOf(signed.key), { name: "Ed25519" }, false, ["verify"]);
  } catch {
    return mark("late", "late", "This browser knows no Ed25519: the signature was not checked.");
  }
  const good = await crypto.subtle.verify({ name: "Ed25519" }, key, bytesOf(signed.signature), message);
  const said = JSON.parse(new TextDecoder().decode(body)).predicate;
  if (!good) return mark("failed", "failed", "The signature does not fit.");
  return said.version_digest === version_digest
    ? mark("new", "pass", `Generation ${said.generation} names exactly this version, signed by ${signed.name}.`)
    : mark("failed", "failed", "The signed generation names another version.");
}

async function verify() {
  button.disabled = true;
  list.replaceChildren();
  const proved = JSON.parse(list.dataset.proved), wrong = [];
  for (const cell of cells) {
    const found = await file(cell);
    inCell(cell, found);
    const stated = proved.artifacts[cell.dataset.file];
    if (found.kind !== "new" || (stated && stated !== cell.dataset.digest)) wrong.push(cell.dataset.file);
  }
  conclude(wrong.length
    ? mark("failed", "failed", `Damaged: ${wrong.join(", ")}. Do not use it; tell whoever serves it.`)
    : mark("new", "pass", `All ${cells.length} files are as stated.`));
  conclude(await whole(proved)
    ? mark("new", "pass", "The digest of the version follows from its files.")
    : mark("failed", "failed", "The digest of the version does not follow from its files."));
  conclude(await signature(proved));
  button.disabled = false;
}

if (button && globalThis.crypto?.subtle) {
  button.hidden = false;
  button.addEventListener("click", verify);
  if (location.hash === "#verify") verify();
}
